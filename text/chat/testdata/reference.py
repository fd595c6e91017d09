"""Writes reference.json.gz: conversations as transformers tokenizes them, with every chat template that TRL and axolotl
ship, and the masks of return_assistant_tokens_mask. The tokenizer, reference_tokenizer.json, is a small byte-level BPE
that knows the control tokens of all templates.

Usage: reference.py TRL AXOLOTL, two folders of *.jinja files: chat_templates of TRL's wheel, and
src/axolotl/utils/chat_templates/templates of axolotl. Made with transformers 5.24, trl 1.16.0 and axolotl 067b021c."""
import datetime
import gzip
import hashlib
import json
import re
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

here = Path(__file__).parent
templates = {}
for origin, folder in zip(("trl", "axolotl"), sys.argv[1:]):
    for path in sorted(Path(folder).glob("*.jinja")):
        templates[f"{origin}/{path.stem}"] = path.read_text(encoding="utf-8")


class Day(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 28)


chat_template_utils.datetime = Day
variables = {"date": "2026-11-28"}


def u(content, **keys):
    return {"role": "user", "content": content, **keys}


def a(content, **keys):
    return {"role": "assistant", "content": content, **keys}


def s(content):
    return {"role": "system", "content": content}


def call(name, arguments, number="call00001"):
    return {"type": "function", "id": number, "function": {"name": name, "arguments": arguments}}


def answer(content, name="weather", number="call00001"):
    return {"role": "tool", "content": content, "tool_call_id": number, "name": name}


tool = {"type": "function", "function": {
    "name": "weather", "description": "The weather \"now\" in <a> city's centre: é",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "a city"},
        "days": {"type": "integer", "enum": [1, 2], "default": 1}}, "required": ["city"]}}}
other = {"type": "function", "function": {
    "name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}
rome, paris = {"city": "Rome", "days": 2}, {"city": "Paris"}
chats = {
    "plain": ([u("Hello"), a("Hi there!")], None),
    "system": ([s("Be brief."), u("What is 2+2?"), a("4")], None),
    "turns": ([u("one"), a("1"), u("two"), a("2"), u("three"), a("3")], None),
    "system and turns": ([s("Be brief."), u("one"), a("1"), u("two"), a("2")], None),
    "spaces": ([u("  spaces \n"), a("\n\nnew lines\n"), u("end?"), a(" yes. ")], None),
    "unicode": ([u("ein Ümlaut 日本語 😀"), a("naïve 中文 ⟦x⟧ 🇩🇪 \u00a0z")], None),
    "empty": ([u(""), a("")], None),
    "open": ([u("a question"), a("an answer"), u("an open question")], None),
    "user twice": ([u("one"), u("two"), a("three")], None),
    "assistant twice": ([u("one"), a("two"), a("three"), u("x"), a("y")], None),
    "system later": ([u("one"), a("two"), s("Now in French."), u("three"), a("quatre")], None),
    "think in text": ([u("q"), a("<think>\nfirst 1\n</think>\n\nanswer"), u("again"),
                       a("<think>\nsecond\n</think>\n\nfinal")], None),
    "one thought in text": ([u("q"), a("<think>\nfirst 1\n</think>\n\nanswer")], None),
    "reasoning": ([u("q"), a("answer", reasoning_content="because 1")], None),
    "reasoning twice": ([u("q"), a("answer", reasoning_content="because 1"), u("and?"),
                         a("final", reasoning_content="thus")], None),
    "reasoning at last": ([u("q"), a("answer"), u("and?"), a("final", reasoning_content="thus")], None),
    "reasoning at first": ([u("q"), a("answer", reasoning_content="so"), u("and?"), a("final")], None),
    "thinking": ([u("q"), a("answer", thinking="because 1"), u("and?"), a("final", thinking="thus")], None),
    "empty reasoning": ([u("q"), a("answer", reasoning_content=""), u("and?"), a("x", reasoning_content="")], None),
    "null keys": ([u("q", name=None, tool_calls=None), a("answer", reasoning_content=None, tool_calls=None)], None),
    "parts": ([u([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]),
               a([{"type": "text", "text": "three"}])], None),
    "tools": ([s("Use tools."), u("Weather in Rome?"), a("", tool_calls=[call("weather", rome)]),
               answer("{\"sunny\": true}"), a("Sunny.")], [tool]),
    "tools and null": ([u("Weather in Rome?"), a(None, tool_calls=[call("weather", rome)]),
                        answer("{\"sunny\": true}"), a("Sunny.")], [tool, other]),
    "tools and text": ([u("Rome?"), a("I look.", tool_calls=[call("weather", rome)]), answer("ü \"q\""), a("Ok."),
                        u("Paris?"), a("", tool_calls=[call("weather", paris, "call00002")]),
                        answer("rain", number="call00002"), a("Rain.")], [tool]),
    "two calls": ([u("Both?"), a("", tool_calls=[call("weather", rome), call("weather", paris, "call00002")]),
                   answer("sun"), answer("rain", number="call00002"), a("Mixed.")], [tool]),
    "tools and reasoning": ([u("Rome?"), a("", reasoning_content="I ask.", tool_calls=[call("weather", rome)]),
                             answer("sun"), a("Sun.", reasoning_content="It said so.")], [tool]),
    "tools, reasoning, turns": ([u("Rome?"), a("", reasoning_content="I ask.", tool_calls=[call("weather", rome)]),
                                 answer("sun"), a("Sun.", reasoning_content="It said so."), u("Sure?"),
                                 a("Yes.", reasoning_content="Sure.")], [tool]),
    "tools unused": ([u("Hello"), a("Hi there!")], [tool]),
    "a call in text": ([u("Rome?"), a("", tool_calls=[call("weather", json.dumps(rome))]), answer("sun"), a("Sun.")],
                       [tool]),
}
control = re.compile(r"<\|[a-z_]{2,30}>|<[a-z_]{2,30}\|>|<[|｜][^<>\s'\"{}|｜]{1,60}[|｜]>"
                     r"|<(?:s|/s|bos|eos|start_of_turn|end_of_turn|start_of_image|pad)>"
                     r"|<\|?[A-Z_]{4,40}\|?>|\[/?[A-Z_]{3,30}\]")
soft = [f"<{end}{name}>" for name in ("think", "tool_call", "tool_response", "tools") for end in ("", "/")]
special = sorted({"<s>", "</s>"} | {t for text in templates.values() for t in control.findall(text)})
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
words = [json.dumps(chats, ensure_ascii=False)]
words += [t for text in templates.values() for t in re.findall(r"'([^']*)'", text)]
tokenizer.train_from_iterator(words, trainers.BpeTrainer(
    vocab_size=600 + len(special), special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer.add_tokens([AddedToken(t, normalized=False) for t in soft])
tokenizer.save(str(here / "reference_tokenizer.json"), pretty=False)
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def digest(ids, mask):
    return hashlib.sha256(json.dumps([ids, mask], separators=(",", ":")).encode()).hexdigest()[:16]


def pair(messages, tools, template, ids):
    """As TRL masks a prompt and a completion of messages: the completion begins where the whole differs from the prompt
    (SFTTrainer, common_prefix_length)."""
    try:
        prompt = fast.apply_chat_template(messages[:-1], tools=tools, chat_template=template, tokenize=True,
                                          return_dict=True, add_generation_prompt=True, **variables)["input_ids"]
    except Exception:
        return None
    same = 0
    while same < min(len(prompt), len(ids)) and prompt[same] == ids[same]:
        same += 1
    return digest(ids, [0] * same + [1] * (len(ids) - same))


cases, full = [], []
for name, template in templates.items():
    marked = re.search(r"\{%[-+]?\s*generation\s*[-+]?%\}", template) is not None
    for chat, (messages, tools) in chats.items():
        case = {"template": name, "chat": chat}
        try:
            got = fast.apply_chat_template(messages, tools=tools, chat_template=template, tokenize=True,
                                           return_dict=True, return_assistant_tokens_mask=True, **variables)
            mask = got["assistant_masks"] if marked else None
            case["sum"] = digest(got["input_ids"], mask)
            case["trained"] = sum(mask) if marked else None
            full.append({**case, "ids": got["input_ids"], "mask": mask})
            if messages[-1]["role"] == "assistant":
                case["pair"] = pair(messages, tools, template, got["input_ids"])
        except Exception as e:
            case["error"] = f"{type(e).__name__}: {e}"[:80]
        cases.append(case)
if len(sys.argv) > 3:
    Path(sys.argv[3]).write_text(json.dumps(full))
out = {"templates": templates, "chats": {name: {"messages": m, "tools": t} for name, (m, t) in chats.items()},
       "variables": variables, "bos": "<s>", "eos": "</s>", "cases": cases}
text = json.dumps(out, ensure_ascii=False, separators=(",", ":"))
(here / "reference.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
errors = sum("error" in c for c in cases)
print(len(templates), "templates,", len(chats), "conversations,", len(cases), "cases,", errors, "refused")
