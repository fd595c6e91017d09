// Package ids reads documents of token ids that follow one another in a file: the part that Megatron's, OLMo's
// and datatrove's formats and raw token files share.
//
// A [Table] has the place of each document. The ids have no checksums: only negative ids and ids of 2³¹ and more are
// noticed. Such an id makes its document bad.
package ids
