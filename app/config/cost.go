package config

import "millrace/app/config/value"

// Model is the shape of a transformer.
type Model struct {
	// Layers is the number of transformer blocks.
	Layers uint32 `yaml:"layers" jsonschema:"required,minimum=1,maximum=65536"`
	// Hidden is the width of the residual stream.
	Hidden uint32 `yaml:"hidden" jsonschema:"required,minimum=1,maximum=1048576"`
	// Heads is the number of attention heads.
	Heads uint32 `yaml:"heads" jsonschema:"required,minimum=1,maximum=65536"`
	// KVHeads is the number of key and value heads. Left out: as many as heads.
	KVHeads uint32 `yaml:"kv_heads" jsonschema:"minimum=1,maximum=65536"`
	// HeadDim is the width of one head. Left out: hidden / heads.
	HeadDim uint32 `yaml:"head_dim" jsonschema:"minimum=1,maximum=65536"`
	// FFN is the inner width of the feed-forward part; with experts, of one expert.
	FFN uint32 `yaml:"ffn" jsonschema:"required,minimum=1,maximum=16777216"`
	// Vocab is the number of rows of the embedding.
	Vocab uint32 `yaml:"vocab" jsonschema:"required,minimum=1,maximum=16777216"`
	// MLA is latent attention: keys and values of the heads come from narrower vectors. In place of head_dim.
	MLA *MLA `yaml:"mla"`
	// Window is the number of tokens that sliding attention sees. Left out: the whole document.
	Window uint32 `yaml:"window" jsonschema:"minimum=1,maximum=16777216"`
	// WindowLayers is the number of layers with sliding attention. Left out, with window: all layers.
	WindowLayers uint32 `yaml:"window_layers" jsonschema:"minimum=1,maximum=65536"`
	// Experts is the number of experts of a layer, for a mixture of experts.
	Experts uint32 `yaml:"experts" jsonschema:"minimum=1,maximum=65536"`
	// ActiveExperts is the number of experts to which a token is routed.
	ActiveExperts uint32 `yaml:"active_experts" jsonschema:"minimum=1,maximum=65536"`
	// SharedExperts is the number of experts that every token also passes.
	SharedExperts uint32 `yaml:"shared_experts" jsonschema:"minimum=1,maximum=65536"`
	// Encoder is the encoder of patches in front of the model, such as a ViT.
	Encoder *Encoder `yaml:"encoder"`
}

// MLA is latent attention.
type MLA struct {
	// Q is the width of a head's query and key.
	Q uint32 `yaml:"q" jsonschema:"required,minimum=1,maximum=65536"`
	// V is the width of a head's value.
	V uint32 `yaml:"v" jsonschema:"required,minimum=1,maximum=65536"`
	// QRank is the width of the vectors from which queries are made. Left out: hidden.
	QRank uint32 `yaml:"q_rank" jsonschema:"minimum=1,maximum=1048576"`
	// KVRank is the width of the vectors from which keys and values are made. Left out: hidden.
	KVRank uint32 `yaml:"kv_rank" jsonschema:"minimum=1,maximum=1048576"`
}

// Encoder is the shape of a bidirectional encoder.
type Encoder struct {
	// Layers is the number of transformer blocks.
	Layers uint32 `yaml:"layers" jsonschema:"required,minimum=1,maximum=65536"`
	// Hidden is the width of the residual stream.
	Hidden uint32 `yaml:"hidden" jsonschema:"required,minimum=1,maximum=1048576"`
	// Heads is the number of attention heads.
	Heads uint32 `yaml:"heads" jsonschema:"required,minimum=1,maximum=65536"`
	// HeadDim is the width of one head. Left out: hidden / heads.
	HeadDim uint32 `yaml:"head_dim" jsonschema:"minimum=1,maximum=65536"`
	// FFN is the inner width of the feed-forward part.
	FFN uint32 `yaml:"ffn" jsonschema:"required,minimum=1,maximum=16777216"`
	// PatchesPerImage is the number of patches that see each other. Left out: all patches of a document.
	PatchesPerImage uint32 `yaml:"patches_per_image" jsonschema:"minimum=1,maximum=16777216"`
}

// Cost gives the compute of a segment, in any one unit: linear and quadratic, or formulas.
type Cost struct {
	// Linear is the cost of a token, independent of its context.
	Linear uint64 `yaml:"linear" jsonschema:"maximum=1000000000000"`
	// Quadratic is the cost of attention, for each token squared.
	Quadratic uint64 `yaml:"quadratic" jsonschema:"maximum=1000000000000"`
	// Backbone is the cost of a segment as a formula of its tokens, such as 61000*tokens + tokens^2, in place of linear
	// and quadratic.
	Backbone value.Formula `yaml:"backbone"`
	// Encoder is the cost of a document's patches as a formula, such as 4600*patches + patches^2, in the unit of
	// backbone.
	Encoder value.Formula `yaml:"encoder"`
}
