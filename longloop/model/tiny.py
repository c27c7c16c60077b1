"""A model small enough for tests and first steps: a Llama of eighty thousand weights that reads characters.

Its weights are random, drawn from the seed: all that it can do later, it learned from the reward.
"""

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 .,:?!-'\n"
ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """One id per character (in lower case, unknown ones share `<unk>`), and a chat template with three roles."""
    vocab = {"<unk>": 0} | {character: id for id, character in enumerate(_CHARACTERS, start=1)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in [*ROLES, "<|end|>"]])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>", chat_template=TEMPLATE
    )


def model(seed: int, hidden: int = 64, layers: int = 2, heads: int = 4) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    reads = tokenizer()
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(reads),
            bos_token_id=None,
            eos_token_id=reads.eos_token_id,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads // 2,
            max_position_embeddings=2048,
            tie_word_embeddings=False,
        )
    )
