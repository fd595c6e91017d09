package fields

// WholeNumbers returns a list of whole numbers, or of booleans as 1 and 0; ok is false if the value is another one.
func WholeNumbers(v any) (numbers []int64, ok bool) {
	switch v := v.(type) {
	case []uint32:
		for _, n := range v {
			numbers = append(numbers, int64(n))
		}
		return numbers, true
	case []any:
		for _, x := range v {
			switch n := x.(type) {
			case int:
				numbers = append(numbers, int64(n))
			case int64:
				numbers = append(numbers, n)
			case bool:
				number := int64(0)
				if n {
					number = 1
				}
				numbers = append(numbers, number)
			default:
				return nil, false
			}
		}
		return numbers, true
	}
	return nil, false
}
