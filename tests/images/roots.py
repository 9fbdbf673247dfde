"""Directories that stand for images' file systems: a clean Debian made with debootstrap; commands in it, as a builder or a pod would.

Needs root and mount namespaces; no container engine. What a command mounts lives in its own namespace and ends with it."""

import os
import pathlib
import shlex
import shutil
import subprocess

SLIM = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache/apt", "var/lib/apt/lists", "var/log")
CA_FILE = "/etc/ssl/certs/ca-certificates.crt"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def debian_slim(root: pathlib.Path):
    """What debian:12-slim holds: the smallest Debian 12, without documentation, and a dpkg that skips it and its syncs. Made once."""
    if (root / "etc/debian_version").exists():
        return
    part = root.with_name(root.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", part], check=True, stdout=subprocess.DEVNULL)
    for folder in SLIM:
        for entry in (part / folder).glob("*"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for kept in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        (part / kept).mkdir(parents=True, exist_ok=True)
    excludes = "".join(f"path-exclude /{folder}/*\n" for folder in SLIM if folder.startswith("usr/share"))
    (part / "etc/dpkg/dpkg.cfg.d/docker").write_text("force-unsafe-io\n" + excludes)
    part.rename(root)


def copy_root(source, target):
    subprocess.run(["cp", "-a", "--reflink=auto", source, target], check=True)


def size_mib(root):
    return int(subprocess.run(["du", "-sxm", root], check=True, capture_output=True, text=True).stdout.split()[0])


def inside(root, mounts, command, user, workdir, env):
    """The argv that runs `command` in `root`. It keeps its process id through all of this, so signals reach it.

    `mounts`: shell lines, run first, as root, in a mount namespace of their own; $ROOT is the root."""
    keys = [f"{key}={value}" for key, value in env.items()]
    enter = ["chroot", f"--userspec={user}", "--groups=", str(root), "env", "-i", "-C", workdir, *keys, *command]
    script = "\n".join(["set -e", "mount --make-rprivate /", f"ROOT={shlex.quote(str(root))}", *mounts, "exec " + shlex.join(enter)])
    return ["unshare", "--mount", "sh", "-c", script]


def run_step(root, command, workdir, env, caches):
    """A RUN step: as root, the root writable, the host's network with its resolver and certificates. `caches`: target -> folder."""
    mounts = ['mount --rbind /dev "$ROOT/dev"', 'mount -t proc proc "$ROOT/proc"']
    for target, folder in caches.items():
        mounts += [f'mkdir -p "$ROOT"{target}', f'mount --bind {shlex.quote(str(folder))} "$ROOT"{target}']
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    env = {"HOME": "/root", "PATH": PATH, **env}
    env.update({key: os.environ[key] for key in ("LANG", "LC_ALL") if key in os.environ})  # which ccache's keys hold
    if os.path.exists(CA_FILE):
        (root / "run/host-ca").mkdir(exist_ok=True)
        shutil.copy(CA_FILE, root / "run/host-ca/ca.crt")
        env["PIP_CERT"] = "/run/host-ca/ca.crt"
    argv = inside(root, mounts, ["/bin/sh", "-c", command], "0:0", workdir, env)
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    shutil.rmtree(root / "run/host-ca", ignore_errors=True)
    for target in caches:
        shutil.rmtree(root / target.lstrip("/"), ignore_errors=True)


def as_pod(image, arguments, volumes, command=None):
    """The argv of an image's entry point (or `command`) as a pod runs it: its user, a read-only root, /proc, /dev and a tmpfs on
    /dev/shm, volumes (target -> path on this host) read-only too."""
    mounts = ['mount --bind "$ROOT" "$ROOT"', 'mount --rbind /dev "$ROOT/dev"', 'mount -t tmpfs -o mode=1777 shm "$ROOT/dev/shm"',
              'mount -t proc proc "$ROOT/proc"']
    for target, source in volumes.items():
        mounts += [f'mkdir -p "$ROOT"{target}', f'mount --bind {shlex.quote(str(source))} "$ROOT"{target}',
                   f'mount -o remount,bind,ro "$ROOT"{target}']
    mounts.append('mount -o remount,bind,ro "$ROOT"')
    env = {"PATH": PATH, **image.env}
    return inside(image.root, mounts, (command or image.entrypoint) + [str(a) for a in arguments], image.user, "/", env)
