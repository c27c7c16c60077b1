"""Chat templates that take tools, in the manner of the common families: written from knowledge of the formats.

Their tokenizers are those of `templates.py`, with the tokens that belong to calls.
"""

from functools import cache

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from tests.support.templates import _LLAMA3, FAMILIES
from tests.support.templates import tokenizer as plain_tokenizer

_QWEN25 = """\
{%- set first = messages[0].content if messages[0].role == 'system' else 'You are a helpful assistant.' %}
{{- '<|im_start|>system\n' + first }}
{%- if tools %}
    {{- '\n\n# Tools\n\n<tools>' }}
    {%- for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}
    {{- '\n</tools>\n\nFor each call, write it within <tool_call></tool_call> tags:\n<tool_call>\n' }}
    {{- '{"name": <name>, "arguments": <object>}\n</tool_call>' }}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
    {%- elif m.role == 'assistant' and m.tool_calls %}
        {{- '<|im_start|>assistant' + ('\n' + m.content if m.content else '') }}
        {%- for call in m.tool_calls %}
            {{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- (call.function.arguments | tojson) + '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif not (loop.first and m.role == 'system') %}
        {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

_QWEN_XML = _QWEN25.replace(
    """'{"name": <name>, "arguments": <object>}\n</tool_call>'""",
    """'<function=name>\n<parameter=key>\nvalue\n</parameter>\n</function>\n</tool_call>'""",
)
_GLM = _QWEN25.replace(
    """'{"name": <name>, "arguments": <object>}\n</tool_call>'""",
    """'name\n<arg_key>key</arg_key>\n<arg_value>value</arg_value>\n</tool_call>'""",
)

# Tools go before the first question, a tool answers as `ipython`, and its answer is quoted as JSON.
_LLAMA31 = """\
{{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' + (m.content | tojson) + '<|eot_id|>' }}
    {%- elif m.tool_calls %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + m.tool_calls[0].function.name }}
        {{- '", "parameters": ' + (m.tool_calls[0].function.arguments | tojson) + '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
        {%- if tools and m.role == 'user' and loop.index0 == (messages[0].role == 'system') | int %}
            {{- 'Answer with JSON to call one of these functions:\n' }}
            {%- for tool in tools %}{{ (tool | tojson) + '\n\n' }}{% endfor %}
        {%- endif %}
        {{- (m.content | trim) + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

# Refuses a conversation in which users and assistants do not alternate, calls and their answers not counted.
_MISTRAL = """\
{{- bos_token }}
{%- set ns = namespace(index=0) %}
{%- for m in messages %}
    {%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}
        {%- if (m.role == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- if tools and loop.first %}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
        {{- '[INST]' + m.content + '[/INST]' }}
    {%- elif m.role == 'tool' %}
        {{- '[TOOL_RESULTS]' + ({'content': m.content, 'call_id': m.tool_call_id} | tojson) + '[/TOOL_RESULTS]' }}
    {%- elif m.tool_calls %}
        {{- '[TOOL_CALLS][' }}
        {%- for call in m.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
            {{- ', "id": "' + call.id + '"}' + ('' if loop.last else ', ') }}
        {%- endfor %}
        {{- ']' + eos_token }}
    {%- else %}{{ m.content + eos_token }}
    {%- endif %}
{%- endfor %}"""

_CALL_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_MISTRAL_TOKENS = ("[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]")

WITH_TOOLS = {
    "qwen2.5": ("chatml", _QWEN25, _CALL_TAGS, ()),
    "qwen-xml": ("chatml", _QWEN_XML, _CALL_TAGS, ()),
    "glm": ("chatml", _GLM, _CALL_TAGS, ()),
    "llama3.1": ("llama3", _LLAMA31, (), ("<|python_tag|>", "<|eom_id|>")),
    "mistral": ("mistral", _MISTRAL, (), _MISTRAL_TOKENS),
    "chatml": ("chatml", FAMILIES["chatml"].template, (), ()),
    "llama3": ("llama3", _LLAMA3, (), ()),
}
"""Name -> (family whose tokenizer it is, template, further tokens, further special tokens)."""


@cache
def tokenizer(name: str) -> PreTrainedTokenizerFast:
    family, template, added, special = WITH_TOOLS[name]
    base = plain_tokenizer(family)
    made = PreTrainedTokenizerFast(
        tokenizer_object=type(base.backend_tokenizer).from_str(base.backend_tokenizer.to_str()),
        bos_token=base.bos_token,
        eos_token=base.eos_token,
        chat_template=template,
    )
    made.add_tokens([AddedToken(text, normalized=False) for text in added])
    made.add_special_tokens({"additional_special_tokens": [AddedToken(text, normalized=False) for text in special]})
    return made
