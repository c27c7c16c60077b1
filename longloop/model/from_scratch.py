"""A small model for one environment: a tokenizer trained on its expert's transcripts, and a Llama with random weights.

The tokenizer is byte-level BPE whose tokens may span words, so that phrases which an environment repeats (its prompt,
its documentation, its code) become a few tokens. Capitalized words, quotes and digits stand alone, so that a name or a
number has the same tokens wherever it is copied to. With `words`, no token spans words, for environments in which any
word may be part of a name: texts become longer, and copying easier.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from longloop.model.tiny import ROLES, TEMPLATE

_LONGEST = 32
_ALONE = Regex(r"[A-Z][a-z]+|[0-9]|[\"']")
_WORD = Regex(r" ?[A-Za-z]+| ?[0-9]|\s+")


def make(
    folder: Path, texts: Iterable[str], *, words: bool, vocabulary: int, hidden: int, layers: int, heads: int, seed: int
) -> int:
    """Write the model's folder. Returns the number of its weights."""
    tokenizer = train_tokenizer(texts, vocabulary, words)
    torch.manual_seed(seed)
    module = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            intermediate_size=3 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads // 2 if heads % 2 == 0 else heads,
            max_position_embeddings=4096,
            initializer_range=hidden**-0.5,  # the usual 0.02 is for widths of a thousand; here it learns far slower
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    tokenizer.save_pretrained(folder)
    module.save_pretrained(folder)
    return sum(p.numel() for p in module.parameters())


def train_tokenizer(texts: Iterable[str], vocabulary: int, words: bool = False) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_WORD if words else _ALONE, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in [*ROLES, "<|end|>"]]
    # A merge that spells a special token would get its id, and text could then forge it: show none to the trainer.
    spelled = re.compile("|".join(re.escape(str(token)) for token in special))
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=_LONGEST,
        show_progress=False,
    )
    backend.train_from_iterator((spelled.sub("\n", text) for text in texts), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>", chat_template=TEMPLATE
    )
