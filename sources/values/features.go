package values

import "encoding/json"

// Features names the values of a table that are JSON, by the features that Hugging Face's datasets writes beside the
// schema. The nil Features names none.
type Features struct {
	IsJSON bool
	fields map[string]*Features
	list   *Features // of a list's elements
}

// FeaturesKey is the key of the features among the metadata of a schema.
const FeaturesKey = "huggingface"

// FeaturesOf reads the metadata of a schema. Metadata of another form has no features, as in datasets.
func FeaturesOf(metadata []byte) *Features {
	var in struct {
		Info struct {
			Features map[string]json.RawMessage `json:"features"`
		} `json:"info"`
	}
	if json.Unmarshal(metadata, &in) != nil {
		return nil
	}
	out := &Features{fields: map[string]*Features{}}
	for name, feature := range in.Info.Features {
		out.fields[name] = featureOf(feature, 0)
	}
	return out
}

// featureOf reads one feature: a leaf, a list, an old form of a list, or the fields of a struct.
func featureOf(raw json.RawMessage, depth int) *Features {
	if depth > mostDepth {
		return nil
	}
	var old []json.RawMessage
	if json.Unmarshal(raw, &old) == nil && len(old) == 1 {
		return &Features{list: featureOf(old[0], depth+1)}
	}
	var in map[string]json.RawMessage
	if json.Unmarshal(raw, &in) != nil {
		return nil
	}
	var kind string
	if json.Unmarshal(in["_type"], &kind) == nil {
		inside, isList := in["feature"]
		switch {
		case kind == "Json":
			return &Features{IsJSON: true}
		case isList:
			return &Features{list: featureOf(inside, depth+1)}
		}
		return nil
	}
	out := &Features{fields: map[string]*Features{}}
	for name, feature := range in {
		out.fields[name] = featureOf(feature, depth+1)
	}
	return out
}

// Field returns the features of a struct's field. A list of structs may be stored as a struct of lists.
func (f *Features) Field(name string) *Features {
	switch {
	case f == nil:
		return nil
	case f.list != nil:
		return &Features{list: f.list.Field(name)}
	}
	return f.fields[name]
}

// Element returns the features of a list's elements.
func (f *Features) Element() *Features {
	if f == nil {
		return nil
	}
	return f.list
}
