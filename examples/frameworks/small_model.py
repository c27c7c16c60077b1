"""Makes a model for a CPU that knows the game and not how to play it well: `python small_model.py [FOLDER]`.

It has seen how each framework opens a conversation (`openings.json`, what their agents send first), and calls of the
tool with numbers that are still possible, each as often as the others. So it calls the tool in the format of its
template and finds the number in 78% of its attempts. To begin with the middle, which finds every one, is left to learn.
What its texts repeat are single tokens; a call is four.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from longloop.tokens.chat import Chat
from longloop.tokens.tools import FORMATS
from longloop.types import Message

Tool = dict[str, Any]

OPENINGS = Path(__file__).parent / "openings.json"
CALL = '<tool_call>\n{"name": "guess", "arguments": {"number": %d}}\n</tool_call>'
AFTERWARDS = (
    *(("higher", 1, (2, 3)), ("higher", 2, (3,)), ("lower", 2, (1,)), ("lower", 3, (1, 2))),
    *(("right", guess, (guess,)) for guess in (1, 2, 3)),
)
"""An answer, the guess before it, and the guesses that are left."""
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
TEMPLATE = """\
{%- if tools %}<|system|>{% for tool in tools %}{{ (tool | tojson) + '\n' }}{% endfor %}
    {{- 'To call one:\n<tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call><|end|>' }}
{%- endif %}
{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}
    {%- for call in m.tool_calls or [] %}
        {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
        {{- (call.function.arguments | tojson) + '}\n</tool_call>' }}
    {%- endfor %}<|end|>
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""


def talks(frameworks: Sequence[str]) -> Iterator[tuple[list[Message], list[Tool], tuple[int, ...]]]:
    """What a model may have to answer in the first two turns: what was said, the tools, and guesses that make sense."""
    hermes = next(one for one in FORMATS if one.name == "hermes")
    for framework, opening in json.loads(OPENINGS.read_text()).items():
        if frameworks and framework not in frameworks:
            continue
        begun = [Message(*message) for message in opening["messages"]]
        yield begun, opening["tools"], (1, 2, 3)
        for answer, guess, left in AFTERWARDS:
            call = CALL % guess
            after = [Message("assistant", call), Message("tool", answer)]
            if "retold" in opening:  # the framework tells the model of its calls in words of its own
                told = opening["retold"] % (hermes.calls(call, opening["tools"])[0].id, guess)
                after = [Message("assistant", told), Message("user", opening["observed"] % answer)]
            yield begun + after, opening["tools"], left


def written(said: list[Message], tools: list[Tool]) -> str:
    """A conversation as the template writes it."""
    blank = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=TEMPLATE)
    messages = [{"role": message.role, "content": message.content} for message in said]
    return str(blank.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True))


def tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Pieces of the texts between digits are tokens, and every character is."""
    pieces = {piece for text in texts for piece in re.split(r"<\|[a-z]+\|>|\d", text)}
    longest_first = sorted((piece for piece in pieces if len(piece) > 1), key=lambda piece: (-len(piece), piece))
    characters = sorted(set("".join(texts)) | {chr(code) for code in range(32, 127)})
    vocab = {token: id for id, token in enumerate(["<unk>", *characters, *longest_first])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    spelled = "|".join([*map(re.escape, longest_first), r"[\s\S]"])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(spelled), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(role, special=True, normalized=False) for role in ROLES])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>", chat_template=TEMPLATE
    )


def make(folder: Path, frameworks: Sequence[str] = (), steps: int = 150) -> None:
    """Write the model's folder. `frameworks`: those whose words it has seen; all, if none is named."""
    seen = [*talks(frameworks)]
    reads = tokenizer([*(written(said, tools) for said, tools, _ in seen), CALL % 1])
    chat = Chat(reads)
    samples = [
        (chat.encode(chat.render(said, tools=tools)), chat.action_ids(CALL % guess))
        for said, tools, guesses in seen
        for guess in guesses * (6 // len(guesses))
    ]
    longest = max(len(context) + len(action) for context, action in samples)
    ids, labels = (torch.full((len(samples), longest), fill) for fill in (reads.eos_token_id, -100))
    for row, (context, action) in enumerate(samples):
        end = len(context) + len(action)
        ids[row, :end] = torch.tensor(context + action)
        labels[row, len(context) : end] = torch.tensor(action)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(reads),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            bos_token_id=None,
            eos_token_id=reads.eos_token_id,
        )
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"Made a model with {sum(p.numel() for p in model.parameters())} weights in {folder}.")
    model.save_pretrained(folder)
    reads.save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1] if len(sys.argv) > 1 else "small_model"))
