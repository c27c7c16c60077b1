"""Chat formats of the common model families, and a small tokenizer for each: made here, nothing is downloaded.

The templates are written from knowledge of the formats. Each tokenizer is a BPE trained on a few lines of text, with
its family's special tokens and its family's way of splitting text, so that what is hard about the real ones (merges
over spaces and newlines, tokens that swallow or trim white space, a space in front of the first word) is here too.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

_CHATML = """\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

# Thoughts are kept only in turns after the last user message, and always in one layout. A tool's answer is no user
# message, so thoughts survive tool calls.
_QWEN3 = """\
{%- set ns = namespace(query=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.query = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {%- set said = m.content %}
        {%- set thought = '' %}
        {%- if '</think>' in said %}
            {%- set thought = said.split('</think>')[0].split('<think>')[-1].strip('\n') %}
            {%- set said = said.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' }}
        {%- if loop.index0 > ns.query and (loop.last or thought) %}
            {{- '<think>\n' + thought + '\n</think>\n\n' }}
        {%- endif %}
        {{- said + '<|im_end|>\n' }}
    {%- elif m.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

_LLAMA3 = """\
{{- bos_token }}
{%- for m in messages %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + (m.content | trim) + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

_SPLIT_OFF_SYSTEM = """\
{%- set system = '' %}
{%- set turns = messages %}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content + '\n\n' %}
    {%- set turns = messages[1:] %}
{%- endif %}
{%- for m in turns %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role not in ('user', 'assistant') %}
        {{- raise_exception('roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
{%- endfor %}"""

_GEMMA3 = (
    "{{- bos_token }}"
    + _SPLIT_OFF_SYSTEM
    + """\
{%- for m in turns %}
    {{- '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\n' }}
    {{- (system if loop.first else '') + (m.content | trim) + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""
)

_PHI3 = """\
{%- for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"""

_MISTRAL = (
    "{{- bos_token }}"
    + _SPLIT_OFF_SYSTEM
    + """\
{%- for m in turns %}
    {%- if m.role == 'user' %}{{ '[INST] ' + (system if loop.WHERE else '') + m.content + ' [/INST]' }}
    {%- else %}{{ ' ' + (m.content | trim) + eos_token }}
    {%- endif %}
{%- endfor %}"""
)


@dataclass(frozen=True)
class Family:
    template: str
    special: tuple[str, ...]
    end: str
    """The token that closes the assistant's turn."""
    plain: tuple[str, ...] = ()
    """Added tokens that are not special, as `<think>`."""
    bos: str | None = None
    eos: str | None = None
    """The tokenizer's end token, where it is another."""
    lead: str = ""
    """What an action begins with: the white space that the template puts in front of it."""
    trims: bool = False
    """Whether the template strips the white space around an assistant's message."""
    sentencepiece: bool = False
    swallows: bool = False
    """Whether special tokens swallow the white space after them."""


_ROLES = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
_IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_INST = ("<s>", "</s>", "[INST]", "[/INST]")
_HEADERS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_TURNS = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
_FIRST, _LAST = (_MISTRAL.replace("WHERE", where) for where in ("first", "last"))

FAMILIES = {
    "chatml": Family(_CHATML, _IM, "<|im_end|>"),
    "qwen3": Family(_QWEN3, _IM, "<|im_end|>", ("<think>", "</think>", "<tool_response>", "</tool_response>")),
    "llama3": Family(_LLAMA3, _HEADERS, "<|eot_id|>", bos="<|begin_of_text|>", eos="<|end_of_text|>", trims=True),
    "gemma3": Family(_GEMMA3, _TURNS, "<end_of_turn>", bos="<bos>", eos="<eos>", trims=True),
    "phi3": Family(_PHI3, _ROLES, "<|end|>", eos="<|endoftext|>", swallows=True),
    "mistral": Family(_FIRST, _INST, "</s>", bos="<s>", lead=" ", trims=True),
    "mistral-sp": Family(_FIRST, _INST, "</s>", bos="<s>", lead=" ", trims=True, sentencepiece=True),
    "mistral-last": Family(_LAST, _INST, "</s>", bos="<s>", lead=" ", trims=True),
}
APPEND_ONLY = ("chatml", "llama3", "gemma3", "phi3", "mistral", "mistral-sp")

_TEXT = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.\n\nIt was only a fox.\n",
    "def answer(question):\n    if question:\n        return 42\n    return None\n\n\nprint(answer('why?'))\n",
    "user assistant system model tool: what is 17 + 25? It's 42.  Isn't it?   Yes; they're sure, I'll bet.\n",
    "Übung macht den Meister. Où est l'été ? 日本語 です。 Привет, мир!\n",
]
# How Qwen splits text before merging: words with the space before them, single digits, newlines in runs.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@cache
def tokenizer(name: str) -> PreTrainedTokenizerFast:
    """The family's tokenizer, with its chat template."""
    family = FAMILIES[name]
    backend = _sentencepiece(family.special) if family.sentencepiece else _byte_level(compose="im" in family.end)
    backend.add_special_tokens([AddedToken(t, normalized=False, rstrip=family.swallows) for t in family.special])
    backend.add_tokens([AddedToken(t, normalized=False) for t in family.plain])
    if family.bos:  # plain encoding adds the begin token, as the real ones do; a template must not get it twice
        backend.post_processor = processors.TemplateProcessing(
            f"{family.bos} $A", special_tokens=[(family.bos, backend.token_to_id(family.bos))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=family.bos,
        eos_token=family.eos or family.end,
        chat_template=family.template,
    )


def _byte_level(compose: bool) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    if compose:
        backend.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    _train(backend, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return backend


def _sentencepiece(special: Iterable[str]) -> Tokenizer:
    """Spaces become part of the word, the first word gets one, unknown characters fall apart into bytes."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    _train(backend, special_tokens=["<unk>", *special])
    spec = json.loads(backend.to_str())
    vocab = spec["model"]["vocab"]
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    spec["model"]["byte_fallback"] = True
    spec["pre_tokenizer"]["split"] = False
    backend = Tokenizer.from_str(json.dumps(spec))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return backend


def _train(backend: Tokenizer, **options: object) -> None:
    backend.train_from_iterator(_TEXT * 3, trainers.BpeTrainer(vocab_size=700, show_progress=False, **options))
