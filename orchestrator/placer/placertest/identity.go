package placertest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Identity returns the mark of a process of this host that no other one has, at any time: its id and the time of its
// start. It is empty for a process that has ended.
func Identity(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(b), ") ") // the name of the program is in brackets
	fields := strings.Fields(after)
	if err != nil || len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return strconv.Itoa(pid) + "-" + fields[19] // field 22 of the file
}
