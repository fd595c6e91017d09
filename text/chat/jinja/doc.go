// Package jinja renders chat templates as transformers' apply_chat_template does: Jinja with trim_blocks,
// lstrip_blocks, loop controls, {% generation %} blocks and transformers' own tojson.
//
// A renderer for this purpose has to know where each character of its output comes from: tokens such as <|im_start|>
// are special in the template's own text alone, and only generated text is trained on. So texts are sequences of
// characters that carry their origin through every operation of a template.
//
// Templates come from strangers. They can read nothing but their values. Parse refuses a tag, filter or test that the
// package does not have, by its name. Limits bound the steps, the depth and the memory of a rendering.
package jinja
