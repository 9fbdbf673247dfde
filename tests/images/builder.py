"""Runs a Dockerfile's steps in clean roots, in order, and gives the last stage back as an image."""

import dataclasses
import fnmatch
import pathlib
import re
import shutil
import time

import roots
from dockerfile import parse


@dataclasses.dataclass
class Image:
    root: pathlib.Path
    env: dict = dataclasses.field(default_factory=dict)
    args: dict = dataclasses.field(default_factory=dict)
    user: str = "0:0"
    workdir: str = "/"
    entrypoint: list = dataclasses.field(default_factory=list)


class Context:
    """The files a build may read: all of `folder` but what its .dockerignore names."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        lines = (folder / ".dockerignore").read_text().splitlines()
        self.patterns = [line for line in lines if line and not line.startswith("#")]

    def ignores(self, path):
        relative = str(path.relative_to(self.folder))
        return any(fnmatch.fnmatchcase(relative, p) or (p.startswith("**/") and path.name == p[3:]) for p in self.patterns)

    def leave_out(self, folder, names):
        return [name for name in names if self.ignores(pathlib.Path(folder) / name)]


class Builder:
    def __init__(self, context: Context, base: pathlib.Path, work: pathlib.Path, ccache: pathlib.Path):
        self.context, self.base, self.work, self.ccache = context, base, work, ccache

    def build(self, path: pathlib.Path) -> Image:
        """Raises CalledProcessError when a step fails."""
        done = {}
        for number, stage in enumerate(parse(path)):
            root = self.work / f"{path.stem}-{stage.name or number}"
            shutil.rmtree(root, ignore_errors=True)
            roots.copy_root(self.base, root)
            image = Image(root)
            for step in stage.steps:
                start = time.monotonic()
                getattr(self, step.instruction.lower())(image, step, done)
                print(f"{path.name}:{step.line} {step.instruction} {step.value[:100]}: {time.monotonic() - start:.1f} s", flush=True)
            done[stage.name or str(number)] = image
        for earlier in list(done.values())[:-1]:
            shutil.rmtree(earlier.root)
        return image

    def arg(self, image, step, _):
        image.args.update(step.pairs())

    def env(self, image, step, _):
        image.env.update(step.pairs())

    def label(self, image, step, _):
        step.pairs()

    def expose(self, image, step, _):
        [int(port) for port in step.words()]

    def user(self, image, step, _):
        image.user = step.value

    def entrypoint(self, image, step, _):
        image.entrypoint = step.exec_form()

    def workdir(self, image, step, _):
        image.workdir = step.value
        (image.root / step.value.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def run(self, image, step, _):
        caches = {}
        if mount := step.flags.get("mount"):
            target = re.fullmatch(r"type=cache,target=(/\S+)", mount)[1]
            caches[target] = self.ccache
        roots.run_step(image.root, step.value, image.workdir, {**image.args, **image.env}, caches)

    def copy(self, image, step, done):
        *sources, target = step.words()
        to = image.root / str(pathlib.PurePosixPath(image.workdir) / target).lstrip("/")
        into = target.endswith("/") or len(sources) > 1
        for source in sources:
            if "from" in step.flags:
                path, leave_out = done[step.flags["from"]].root / source.lstrip("/"), None
            else:
                path, leave_out = self.context.folder / source, self.context.leave_out
                assert path == self.context.folder or not self.context.ignores(path), f"COPY of {source}, which .dockerignore leaves out"
            if path.is_dir():
                shutil.copytree(path, to, symlinks=True, dirs_exist_ok=True, ignore=leave_out)
            else:
                (to if into else to.parent).mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, to / path.name if into else to)
