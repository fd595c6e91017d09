package mixing

const keyGolden = "f0d386fe677cfa281898aac46fa8c614"

var permutationGolden = []struct {
	n      uint64
	images []uint64
}{
	{10, []uint64{3, 4, 1, 6, 2, 5, 7, 8, 0, 9}},
	{1<<20 + 1, []uint64{647463, 843662, 965506, 782282, 708665, 146824, 864615, 850898}},
	{1e12, []uint64{132266833994, 709748861714, 751526675888, 552144201160, 419315346463, 202174306419}},
}

// drawsGolden: at draw leaves, source a leaves (-1: never).
var drawsGolden = []struct {
	weights []string
	longest int64
	leaves  int
	draws   string
}{
	{[]string{"0.6", "0.3", "0.1"}, 1, -1, "abaabacabaabaabacabaabaabacabaabaabacaba"},
	{[]string{"1", "1", "1", "1", "8"}, 1, 24, "eeaeebeecedeeeaeebeecedeeeebeecedeeeeebe"},
	{[]string{"0.6", "0.3", "0.1"}, 2048, -1, "abaaaaaacacabaaaabcababababacccccbaaaaac"},
	{[]string{"8", "5", "3", "2", "1", "1"}, 2048, 20, "adaaabafccabedacacfabdbbedbdcccccbcdecdb"},
}
