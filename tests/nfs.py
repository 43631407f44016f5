"""`strand import` from an NFS mount: nfs-ganesha as the server, and libnfs behind FUSE as the client (tests/real/c/nfs_mount.c),
because the kernel of a test machine often has no NFS client. real.py runs these checks. They need root, /dev/fuse, and what
scripts/real.sh installs; without these they say so.
"""
import os
import shutil
import subprocess
import time

import sources
from harness import free_port
from sources import counts, mail

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Most seconds until the client asks for attributes anew: it keeps them for 3.
WAIT_S = 30
CONFIG = """
NFS_KRB5 {{ Active_krb5 = false; }}
NFS_CORE_PARAM {{ Bind_addr = 127.0.0.1; NFS_Port = {port}; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = None; }}
# libnfs does not renew a lease.
NFSv4 {{ Grace_Period = 1; Lease_Lifetime = 120; RecoveryBackend = fs; RecoveryRoot = {folder}/recovery; Graceless = true; }}
# The files are changed beside the server, so the server must look at them each time.
EXPORT {{ Export_Id = 1; Path = {folder}/export; Pseudo = /e; Access_Type = RO; Squash = No_Root_Squash; SecType = sys; Protocols = 4;
  Transports = TCP; Attr_Expiration_Time = 0; FSAL {{ Name = VFS; }} }}
"""
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def why_not():
    """What this machine lacks for an NFS mount, or nothing."""
    if os.geteuid() != 0:
        return "this is not root"
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    return next((f"there is no {name}" for name in ("ganesha.nfsd", "fusermount3", "gcc") if not shutil.which(name)), None)


def stamps(folder):
    """Path, size, time of change and inode of each file."""
    files = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    stats = {os.path.relpath(path, folder): os.stat(path) for path in files}
    return {path: (stat.st_size, stat.st_ctime_ns, stat.st_ino) for path, stat in stats.items()}


class Mount:
    """<folder>/export by NFS at <folder>/mount."""

    def __init__(self, world):
        self.world, self.folder = world, f"{world.folder}/mount"
        for name in ("export", "mount", "recovery"):
            os.makedirs(f"{world.folder}/{name}")
        port = free_port()
        world.write("ganesha.conf", CONFIG.format(port=port, folder=world.folder))
        arguments = ["-F", "-f", f"{world.folder}/ganesha.conf", "-L", f"{world.folder}/ganesha.log", "-p", f"{world.folder}/ganesha.pid"]
        self.server = world.start(port, ["ganesha.nfsd", *arguments])
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3", "libnfs"], capture_output=True, text=True, check=True)
        program = f"{world.folder}/nfs_mount"
        subprocess.run(["gcc", "-O1", "-o", program, f"{ROOT}/tests/real/c/nfs_mount.c", *flags.stdout.split()], check=True)
        self.client = subprocess.Popen([program, f"nfs://127.0.0.1/e?nfsport={port}&version=4", self.folder], stdin=subprocess.DEVNULL)
        for _ in range(400):
            if os.path.ismount(self.folder):
                return
            assert self.client.poll() is None, "the mount ended at its start"
            time.sleep(0.025)
        raise AssertionError("no mount")

    def shows(self):
        """Waits until the mount shows what is exported."""
        end = time.monotonic() + WAIT_S
        while stamps(self.folder) != stamps(f"{self.world.folder}/export"):
            assert time.monotonic() < end, "the mount does not show a change"
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["fusermount3", "-u", "-z", self.folder], check=False)
        try:
            self.client.wait(20)
        except subprocess.TimeoutExpired:
            self.client.kill()
            self.client.wait(20)


@check
def a_mount_is_imported_and_followed(world):
    with Mount(world) as mount:
        for i in range(300):
            world.write(f"export/m/{i % 7}/{i}.eml", mail(f"message {i}", f"text of {i}"))
        world.write("export/large.txt", "many words of a line\n" * 200_000)
        world.write("export/word.txt", "word-1\n")
        first, _ = world.imports(mount.folder, "--no-index")
        assert counts(first) == [302, 0, 0, 0, 0], first
        assert len(world.client.hget("d:large.txt", "body")) > 4_000_000
        again, _ = world.imports(mount.folder, "--no-index")
        assert counts(again) == [0, 0, 0, 302, 0], again

        # A change of another client shows when the attributes are asked for anew, with the size as before too.
        for text in ("word-2\n", "word-3\n"):
            world.write("export/word.txt", text)
            mount.shows()
            changed, _ = world.imports(mount.folder, "--no-index")
            assert counts(changed) == [0, 1, 0, 301, 0], (text, changed)
            assert world.client.hget("d:word.txt", "body").decode().strip() == text.strip()

        # Inside of the window nothing is lost either: the change comes with the next run.
        world.imports(mount.folder, "--no-index")
        world.write("export/word.txt", "word-4\n")
        world.imports(mount.folder, "--no-index")
        mount.shows()
        world.imports(mount.folder, "--no-index")
        assert world.client.hget("d:word.txt", "body").decode().strip() == "word-4"

        os.rename(f"{world.folder}/export/m/3", f"{world.folder}/export/m/moved")
        os.remove(f"{world.folder}/export/m/4/4.eml")
        mount.shows()
        moved, _ = world.imports(mount.folder, "--no-index", "--max-delete", "50%")
        assert moved["updated"] == 0 and moved["removed"] == moved["added"] + 1, moved
        same = world.run("diff", mount.folder, f"{world.folder}/export")
        assert same.returncode == 0, (same.stdout[-500:], same.stderr[-500:])


@check
def a_mount_that_is_gone_removes_nothing(world):
    with Mount(world) as mount:
        for i in range(50):
            world.write(f"export/{i % 5}/{i}.eml", mail(f"message {i}"))
        world.imports(mount.folder, "--no-index")
        mount.server.process.kill()
        mount.server.process.wait(20)
        server = f"127.0.0.1:{world.strand.port}"
        gone = world.run("import", mount.folder, "--into", "d", "--server", server, "--no-index")
        assert gone.returncode == 5 and "cannot list" in gone.stderr, (gone.returncode, gone.stderr[-500:])
        assert world.client.dbsize() == 50
    # Unmounted: an empty folder is where the documents were.
    empty = world.run("import", mount.folder, "--into", "d", "--server", server, "--no-index")
    assert empty.returncode != 0 and "--max-delete" in empty.stderr, (empty.returncode, empty.stderr[-500:])
    assert world.client.dbsize() == 50


if why := why_not():
    print(f"nfs: SKIPPED: {why}")
    CHECKS.clear()

if __name__ == "__main__":
    sources.main("nfs.py", CHECKS)
