"""Writes tokenizer.json and masks.json: conversations as transformers (5.23) tokenizes them, with the masks of
return_assistant_tokens_mask. The tokenizer is a small byte-level BPE (tokenizers). The templates are Phi-3's, from
jinja/testdata/templates.json, and ChatML with a generation block, as trainers of Qwen models use it."""
import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

here = Path(__file__).parent
cases = json.loads((here.parent / "jinja" / "testdata" / "templates.json").read_text())
chats = [c["messages"] for c in cases["chats"] if c["tools"] is None]
templates = {
    "phi3": cases["templates"]["phi3"],
    "qwen": "{%- for message in messages %}{%- if message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}"
            "{% generation %}{{- message.content + '<|im_end|>' }}{% endgeneration %}{{- '\\n' }}{%- else %}"
            "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}{%- endif %}"
            "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}",
}
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator(
    [m["content"] for c in chats for m in c] * 3 + ["user assistant system\n"],
    trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer.save(str(here / "tokenizer.json"), pretty=False)
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
out = []
for name, template in templates.items():
    for chat in chats:
        # special tokens inside a message are plain text to Millrace alone
        if any(s in m["content"] for m in chat for s in special):
            continue
        got = fast.apply_chat_template(chat, chat_template=template, tokenize=True, return_dict=True,
                                       return_assistant_tokens_mask=True)
        out.append({"template": name, "messages": chat, "ids": got["input_ids"], "mask": got["assistant_masks"]})
(here / "masks.json").write_text(json.dumps({"templates": templates, "eos": "<|endoftext|>", "cases": out},
                                            ensure_ascii=False) + "\n")
print(len(out), "cases,", sum(sum(c["mask"]) for c in out), "trained tokens")
