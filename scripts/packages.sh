# For scripts that source this file: `missing` lists Debian's packages, and install_missing installs them as root or by sudo.
install_missing() {
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "$(basename "$0" .sh): installing ${missing[*]}"
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
