"""The policy: one Hugging Face module, held once, that both samples and learns.

`hidden` runs the transformer over tokens laid end to end, `logits` is the language-model head, `score` computes the
log-probs of chosen tokens without ever holding [tokens, vocabulary].

Private here: `Module._call_impl` and `_compiled_call_impl`, so that the same modules run compiled within a context and
plain outside it (`Module.compile` is for good); and settings of torch's compiler (`torch._dynamo.config`,
`torch._functorch.config`, `torch.fx.experimental._config`), which have no public names.

Shapes: T tokens in the row, N scored tokens, D hidden size, V vocabulary.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from longloop.cache import cache_dir
from longloop.config import ModelConfig
from longloop.model import download, tiny
from longloop.model.attention import NAME, Plan, VarlenPlan
from longloop.model.quantized import quantize
from longloop.model.shards import Shards, attach, cut, load_shard, of_module
from longloop.types import OfLogits, UserError

transformers_logging.disable_progress_bar()
# cuDNN's attention compiles a plan for every new length, seconds each; the other kernels take any length.
torch.backends.cuda.enable_cudnn_sdp(False)
# What deterministic updates need (engine.batch_invariant), and before cuBLAS is first called.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

# Every attention and MLP projection of the common families, as in LOOP's recipe.
_LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

_LIMITS: dict[str, Any] = {"recompile_limit": 256, "accumulated_recompile_limit": 1024}
"""How many variants of a layer one process may compile: several models, with and without adapters, several dtypes.
torch counts by code object, and all modules of all policies share that of `_call_impl`."""


class Policy:
    """A causal LM with its tokenizer. `version` counts the changes to the weights. `shards`: the module is one shard of
    several (shards.py)."""

    def __init__(self, module: Any, tokenizer: Any, config: ModelConfig, shards: Shards | None = None) -> None:
        self.tokenizer = tokenizer
        self.shards = shards
        self.config = config
        self.version = 0
        self.layers: int = module.config.get_text_config().num_hidden_layers
        self.adapters: Any = None
        self._compiled: dict[tuple[Any, bool], list[tuple[Any, Callable[..., Any]]]] = {}
        device, dtype = device_and_dtype(config)
        self.bf16 = dtype == torch.bfloat16
        module.config.use_cache = False
        module.set_attn_implementation(NAME)
        module.to(dtype)
        if config.quantize:
            quantize(module, device, dtype)
        if config.lora_rank:
            module = self._add_adapters(module)
        if shards is not None:
            attach(module, shards)
        for part in module.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0  # sampler and learner must compute the same function
        self.module = module.to(device).eval()
        self._backbone = module.base_model
        self._head = module.get_output_embeddings()
        self._check()

    @property
    def device(self) -> torch.device:
        return self._head.weight.device

    @property
    def end_ids(self) -> list[int]:
        """The end tokens in the model's own generation settings."""
        ends = getattr(self.module.generation_config, "eos_token_id", None)
        return [] if ends is None else ends if isinstance(ends, list) else [ends]

    def trainable(self) -> dict[str, torch.nn.Parameter]:
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    def hidden(self, ids_T: Tensor, position_T: Tensor, plan: Plan) -> Tensor:
        """The last hidden state of every token, [T, D]."""
        out = self._backbone(input_ids=ids_T[None], position_ids=position_T[None], use_cache=False, plan=plan)
        return out.last_hidden_state[0]

    def logits(self, hidden_ND: Tensor, weight_VD: Tensor | None = None) -> Tensor:
        """[N, V] in float32, as the model defines them. `weight_VD` is the head's, where it has been gathered."""
        if weight_VD is None:
            logits = self._head(hidden_ND).float()
        else:
            logits = linear(hidden_ND, weight_VD, self._head.bias).float()
        config = self.module.config
        scale = getattr(config, "logit_scale", 1.0) / getattr(config, "logits_scaling", 1.0)
        if scale != 1:  # a factor of 1 would still cost a pass over [N, V]
            logits = logits * scale
        cap = getattr(config, "final_logit_softcapping", None)
        return cap * torch.tanh(logits / cap) if cap else logits

    def score(
        self,
        hidden_ND: Tensor,
        target_N: Tensor,
        temperature: float,
        chunk: int,
        of_logits: Mapping[str, OfLogits] = MappingProxyType({}),
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Log-prob and entropy of each target, and the numbers that `of_logits` computes, a chunk at a time. Backward
        recomputes a chunk's logits."""
        # Gathered once: the number of chunks differs from rank to rank.
        weight_VD = None if self.shards is None else self._head.whole()

        def piece(hidden: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            logp = (self.logits(hidden, weight_VD) / temperature).log_softmax(-1)
            chosen = logp.gather(1, target[:, None])[:, 0]
            numbers = [number(logp, hidden) for number in of_logits.values()]
            with torch.no_grad():  # last: backward's recomputation stops before it
                entropy = -(logp.exp() * logp).sum(-1)
            return chosen, entropy, *numbers

        pieces = [
            checkpoint(piece, hidden, target, use_reentrant=False) if torch.is_grad_enabled() else piece(hidden, target)
            for hidden, target in zip(hidden_ND.split(chunk), target_N.split(chunk), strict=True)
        ]
        logp_N, entropy_N, *numbers = (torch.cat(column) for column in zip(*pieces, strict=True))
        return logp_N, entropy_N, dict(zip(of_logits, numbers, strict=True))

    @contextmanager
    def without_adapters(self) -> Iterator[None]:
        """The model as it was before training: the reference policy, at no cost in memory."""
        with self.adapters.disable_adapter():
            yield

    @contextmanager
    def using(self, module: Any) -> Iterator[None]:
        """Run another module instead of this one, for instance a frozen copy."""
        mine = self._backbone, self._head
        self._backbone, self._head = module.base_model, module.get_output_embeddings()
        try:
            yield
        finally:
            self._backbone, self._head = mine

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """Run the layers, and what comes before and after them, through torch.compile, which fuses the operations
        between matrix products. All layers are alike but for their number, so they are compiled once."""
        with torch._dynamo.config.patch(**_LIMITS), self._through_compiled(whole=True):
            yield

    @contextmanager
    def fused(self) -> Iterator[None]:
        """The same for an update: the layers in pieces around attention, compiled once for rows of any length.

        What cannot be compiled runs uncompiled, which must be known before the backward pass.
        """
        embeddings = self._backbone.get_input_embeddings()
        with (
            torch._dynamo.config.patch(specialize_float=True, suppress_errors=True, **_LIMITS),
            torch._functorch.config.patch(force_non_lazy_backward_lowering=True),
            # A row that happens to be as long as the model is wide is still a row of any length.
            torch.fx.experimental._config.patch(use_duck_shape=False),  # type: ignore[attr-defined]
            # The first layer's input needs a gradient, as that of the others: under adapters it would not.
            embeddings.register_forward_hook(lambda module, inputs, output: output.requires_grad_()),
            self._through_compiled(whole=False),
        ):
            yield

    @contextmanager
    def _through_compiled(self, whole: bool) -> Iterator[None]:
        # What is compiled is kept between runs; torch's own choice is a temporary folder.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_dir() / "compiled"))
        which = self._backbone, whole
        if which not in self._compiled:
            self._compiled[which] = self._compile_whole() if whole else self._compile_pieces()
        for module, call in self._compiled[which]:
            module._compiled_call_impl = call
        try:
            yield
        finally:
            for module, _ in self._compiled[which]:
                module._compiled_call_impl = None

    def _compile_pieces(self) -> list[tuple[Any, Callable[..., Any]]]:
        """Modules, and what to call instead of each. Compilation happens at the first call."""
        layers = getattr(self._backbone, "layers", ())
        return [(layer, torch.compile(layer._call_impl, dynamic=True)) for layer in layers]

    def _compile_whole(self) -> list[tuple[Any, Callable[..., Any]]]:
        from longloop.model.fused_projections import DeduplicateNodes, fuse

        fuse(self.module)
        options = {"post_grad_custom_pre_pass": DeduplicateNodes()}
        compile = partial(torch.compile, fullgraph=True, dynamic=True, options=options)
        layers = getattr(self._backbone, "layers", ())
        around = [getattr(self._backbone, name) for name in ("rotary_emb", "norm") if hasattr(self._backbone, name)]
        return [
            # As an argument the number may vary; the number that a module holds would be compiled into the code.
            *((layer, partial(compile(layer._call_impl), layer=number)) for number, layer in enumerate(layers)),
            *((module, compile(module._call_impl)) for module in around),
        ]

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Activation checkpointing needs training mode; dropout is off in either mode."""
        self.module.train()
        try:
            yield
        finally:
            self.module.eval()

    def _add_adapters(self, module: Any) -> Any:
        from peft import LoraConfig, get_peft_model

        names = {name.rsplit(".", 1)[-1] for name, _ in module.named_modules()}
        targets = [name for name in _LORA_TARGETS if name in names] or "all-linear"
        lora = LoraConfig(
            r=self.config.lora_rank, lora_alpha=self.config.lora_alpha, lora_dropout=0.0, target_modules=targets
        )
        self.adapters = get_peft_model(module, lora, autocast_adapter_dtype=False)
        return self.adapters.get_base_model()

    def _check(self) -> None:
        """Refuse a model that cannot be run as its own code would run it."""
        try:
            self._check_head()
            self._check_layers()
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, torch.OutOfMemoryError) or self.shards is not None or self.device.type == "meta":
                raise  # who has shards, or asks for a forecast, knows more of what may go wrong
            why = str(error).strip().partition("\n")[0]
            raise UserError(
                f"{type(self.module).__name__} does not run under longloop's attention: choose another model "
                f"({type(error).__name__}: {why})."
            ) from error

    @torch.no_grad()
    def _check_layers(self) -> None:
        """Check that every layer asks the plan, and that sequences in one row know nothing of each other. Where layers
        other than attention look at earlier tokens, they would, and the engine keeps no state for them."""
        ids = torch.arange(1, 9, device=self.device) % self._head.weight.shape[0]
        positions, plan = torch.arange(8, device=self.device).repeat(2), _Noted([8, 8])
        second, behind_another = (
            self.hidden(torch.cat([first, ids]), positions, plan)[8:].float() for first in (ids, ids.flip(0))
        )
        near = (0.05 if self.bf16 else 1e-4) * second.abs().max().item()
        apart = torch.allclose(second, behind_another, rtol=0, atol=near)
        if not apart or plan.layers != set(range(self.layers)):
            raise UserError(
                f"{type(self.module).__name__} has layers other than attention that look at earlier tokens (Mamba, "
                "linear attention, convolutions), or attention that transformers' attention interface does not reach. "
                "longloop does not support them: choose another model."
            )

    @torch.no_grad()
    def _check_head(self) -> None:
        """Check that our way from ids to logits is the model's own; every log-prob would be wrong otherwise."""
        ids = torch.arange(1, 9, device=self.device) % self._head.weight.shape[0]
        positions = torch.arange(len(ids), device=self.device)
        ours = self.logits(self.hidden(ids, positions, VarlenPlan([len(ids)])))
        theirs = self.module(
            input_ids=ids[None], position_ids=positions[None], use_cache=False, plan=VarlenPlan([len(ids)])
        ).logits[0]
        if not torch.allclose(ours, theirs.float(), rtol=1e-3, atol=1e-3):
            raise UserError(
                f"{type(self.module).__name__} computes its logits in a way that longloop does not support."
            )


class _Noted(VarlenPlan):
    """A plan that notes which layers ask it."""

    def __init__(self, lengths: Sequence[int]) -> None:
        super().__init__(lengths)
        self.layers: set[int] = set()

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        self.layers.add(layer)
        return super().attend(layer, q_HTD, k_KTD, v_KTD, scale, window)


def device_and_dtype(config: ModelConfig) -> tuple[torch.device, torch.dtype]:
    """The device and the precision of a model."""
    device = torch.device(config.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if config.dtype == "auto":
        return device, torch.bfloat16 if device.type == "cuda" else torch.float32
    return device, getattr(torch, config.dtype)


def load(config: ModelConfig, seed: int, made: tuple[Any, Any] | None = None, shards: Shards | None = None) -> Policy:
    """Load the model that a config names: a built-in one, a folder, or a name on the Hugging Face hub or in its cache.

    `made`: a module and its tokenizer to take instead. `shards`: keep this rank's shard alone.
    """
    if config.threads:
        torch.set_num_threads(config.threads)
    if (device := device_and_dtype(config)[0]).type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # streams, events and Triton's kernels go to the current one
    module: Any
    tokenizer: Any
    if made is not None:
        module, tokenizer = made
    elif config.path == "tiny":
        module = tiny.model(seed, config.hidden, config.layers)
        tokenizer = tiny.tokenizer()
        if shards is not None:
            module = cut(module, shards, of_module(shards))
    else:
        path = download.source(config.path)
        try:
            if shards is None:
                module = AutoModelForCausalLM.from_pretrained(path, dtype=device_and_dtype(config)[1])
            else:
                module = load_shard(Path(path), device_and_dtype(config)[1], shards)
            tokenizer = AutoTokenizer.from_pretrained(path)
        except (OSError, ValueError, ImportError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UserError(
                f"Cannot load the model {config.path!r}: it is neither a folder with a Hugging Face model nor a name "
                f"that could be fetched ({first}). Set model.path; `longloop models` lists what is built in."
            ) from error
    if config.chat_template:
        try:
            tokenizer.chat_template = Path(config.chat_template).read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise UserError(f"Cannot read model.chat_template {config.chat_template!r}: {why}.") from error
    torch.manual_seed(seed)  # for the adapters' random half
    return Policy(module, tokenizer, config, shards)
