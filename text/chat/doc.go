// Package chat makes documents of conversations, of pairs of prompt and completion, and of preference pairs. Tokens
// that are not trained on have the bit tokenid.Untrained.
//
// A conversation is rendered by a chat template (chat/jinja). Special tokens are recognised in the template's own text
// alone; inside a message they are plain text. A token is trained on if any of its characters is: this is the rule of
// transformers' return_assistant_tokens_mask.
package chat
