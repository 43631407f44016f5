#!/usr/bin/env bash
# make package: makes target/package/strand.deb from a built strand, with man pages, completions and the service, then unpacks the
# package and tries it. Needs dpkg-deb. If promtool and systemd-analyze are installed, checks the monitoring rules and the service, too.
set -euo pipefail
cd "$(dirname "$0")/.."
strand=$(realpath "${1:-target/release/strand}")
out=${CARGO_TARGET_DIR:-target}/package
root=$out/root
rm -rf "$out"
mkdir -p "$root/DEBIAN" "$root"/usr/{bin,lib/systemd/system,share/man/man1,share/doc/strand/{monitoring,docs/formats}} "$root/etc/strand" \
    "$root"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}

install -m 0755 "$strand" "$root/usr/bin/strand"
# Keep the names of functions, which profiles show. Remove the tables of lines, which are large.
strip --strip-debug "$root/usr/bin/strand"
"$strand" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
"$strand" completions bash >"$root/usr/share/bash-completion/completions/strand"
"$strand" completions zsh >"$root/usr/share/zsh/vendor-completions/_strand"
"$strand" completions fish >"$root/usr/share/fish/vendor_completions.d/strand.fish"
install -m 0644 packaging/strand.service packaging/strand-jobs.service "$root/usr/lib/systemd/system/"
install -m 0644 packaging/strand.conf "$root/etc/strand/"
install -m 0644 packaging/monitoring/* "$root/usr/share/doc/strand/monitoring/"
# The pages link to each other, and to README.md and others beside docs/.
install -m 0644 ./*.md "$root/usr/share/doc/strand/"
install -m 0644 docs/*.md "$root/usr/share/doc/strand/docs/"
install -m 0644 docs/formats/*.md "$root/usr/share/doc/strand/docs/formats/"
install -D -m 0644 -t "$root/usr/share/doc/strand/docs/images" docs/images/console.png
install -D -m 0644 -t "$root/usr/share/doc/strand/bindings/python" bindings/python/README.md
{ cat LICENSE; printf '\n\nuPlot, which is part of the console:\n\n'; cat crates/http/console/uplot.LICENSE; } >"$root/usr/share/doc/strand/copyright"

version=$("$strand" --version | awk '{ print $2 }')
libc=$(objdump -T "$strand" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1 | cut -d_ -f2)
size=$(du -sk "$root" | cut -f1)
sed "s/@VERSION@/$version/;s/@ARCH@/$(dpkg --print-architecture)/;s/@SIZE@/$size/;s/@DEPENDS@/libc6 (>= $libc), libgcc-s1/" \
    packaging/debian/control >"$root/DEBIAN/control"
echo /etc/strand/strand.conf >"$root/DEBIAN/conffiles"
install -m 0755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
dpkg-deb --root-owner-group --build "$root" "$out/strand.deb" >/dev/null
rm -rf "$root"

# Try the package: unpack it, ask for its version, start its server, store a key.
tried=$out/tried
dpkg-deb --extract "$out/strand.deb" "$tried"
test "$("$tried/usr/bin/strand" --version)" = "strand $version"
bash -n "$tried/usr/share/bash-completion/completions/strand"
for page in "$tried"/usr/share/man/man1/*.gz; do
    if command -v man >/dev/null; then man --warnings -l "$page" 2>"$out/man.log" >/dev/null; test ! -s "$out/man.log" || { cat "$out/man.log"; exit 1; }; fi
done
if command -v systemd-analyze >/dev/null; then
    for unit in strand.service strand-jobs.service; do
        sed "s#/usr/bin/strand#$(realpath "$tried")/usr/bin/strand#" "packaging/$unit" >"$out/$unit"
        systemd-analyze verify --man=no "$(realpath "$out")/$unit" >"$out/verify.log" 2>&1 || true
        # Only findings about this unit count. Other units of this machine may have findings, too.
        if grep "$unit" "$out/verify.log"; then exit 1; fi
    done
fi
if command -v promtool >/dev/null; then
    promtool check rules --lint=all packaging/monitoring/alerts.yml
    promtool test rules packaging/monitoring/alerts.test.yml
fi
python3 -m json.tool packaging/monitoring/dashboard.json >/dev/null
mkdir "$out/data"
sed 's/^port .*/port 0/;s/^http-port .*/http-port 0/' "$tried/etc/strand/strand.conf" >"$out/strand.conf"
"$tried/usr/bin/strand" serve "$out/strand.conf" --dir "$out/data" >"$out/log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 600); do grep -q 'Ready to accept connections' "$out/log" && break; kill -0 $server; sleep 0.1; done
port=$(grep -oE '127\.0\.0\.1:[0-9]+' "$out/log" | head -1 | cut -d: -f2)
test "$("$tried/usr/bin/strand" cli -p "$port" set packaged yes)" = OK
kill -TERM $server
wait $server
trap - EXIT
rm -rf "$tried" "$out"/{data,strand.conf,strand.service,strand-jobs.service,verify.log,man.log,log}
ls -l "$out/strand.deb"
