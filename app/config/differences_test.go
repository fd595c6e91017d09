package config

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// differences returns a line for each field, element or key in which two values of one type differ. It returns none if
// and only if reflect.DeepEqual says that they are equal.
func differences(path string, got, want reflect.Value) (out []string) {
	differ := func() []string { return []string{fmt.Sprintf("%s: got %+v, want %+v", path, got, want)} }
	if got.IsValid() != want.IsValid() {
		return differ()
	}
	if !got.IsValid() {
		return nil
	}
	switch got.Kind() {
	case reflect.Pointer, reflect.Interface:
		if got.IsNil() || want.IsNil() || got.Elem().Type() != want.Elem().Type() {
			break
		}
		return differences(path, got.Elem(), want.Elem())
	case reflect.Struct:
		for i := range got.NumField() {
			out = append(out, differences(path+"."+got.Type().Field(i).Name, got.Field(i), want.Field(i))...)
		}
		return out
	case reflect.Slice, reflect.Array:
		if got.Len() != want.Len() || got.Kind() == reflect.Slice && got.IsNil() != want.IsNil() {
			break
		}
		for i := range got.Len() {
			out = append(out, differences(fmt.Sprintf("%s[%d]", path, i), got.Index(i), want.Index(i))...)
		}
		return out
	case reflect.Map:
		if got.Len() != want.Len() || got.IsNil() != want.IsNil() {
			break
		}
		for _, key := range want.MapKeys() {
			out = append(out, differences(fmt.Sprintf("%s[%v]", path, key), got.MapIndex(key), want.MapIndex(key))...)
		}
		slices.Sort(out)
		return out
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		if got.IsNil() && want.IsNil() {
			return nil
		}
		return differ()
	default:
		if got.Equal(want) {
			return nil
		}
		return differ()
	}
	if got.IsNil() && want.IsNil() {
		return nil
	}
	return differ()
}

// TestDifferences: each difference has its place, and nothing else is named.
func TestDifferences(t *testing.T) {
	type part struct {
		n    *int
		list []string
	}
	type whole struct {
		A    int
		Of   part
		M    map[string]any
		Pair [2]bool
	}
	one, other, two := 1, 1, 2
	base := func() whole {
		return whole{1, part{&one, []string{"a", "b"}}, map[string]any{"x": 1, "y": "z"}, [2]bool{true, false}}
	}
	for _, c := range []struct {
		change func(w *whole)
		want   []string
	}{
		{func(*whole) {}, nil},
		{func(w *whole) { w.Of.n = &other }, nil},
		{func(w *whole) { w.A, w.Of.n = 2, &two }, []string{".A: got 2, want 1", ".Of.n: got 2, want 1"}},
		{func(w *whole) { w.Of.list = []string{"a", "c"} }, []string{".Of.list[1]: got c, want b"}},
		{func(w *whole) { w.Of.list = []string{"a"} }, []string{".Of.list: got [a], want [a b]"}},
		{func(w *whole) { w.Of.list = nil }, []string{".Of.list: got [], want [a b]"}},
		{func(w *whole) { w.M = map[string]any{"x": 1.0, "q": "z"} },
			[]string{".M[x]: got 1, want 1", ".M[y]: got <invalid reflect.Value>, want z"}},
		{func(w *whole) { w.Pair[1] = true }, []string{".Pair[1]: got true, want false"}},
	} {
		got := base()
		c.change(&got)
		if d := differences("", reflect.ValueOf(got), reflect.ValueOf(base())); !slices.Equal(d, c.want) {
			t.Errorf("%+v: %q, want %q", got, d, c.want)
		}
	}
}
