package vocab

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// ReadTiktoken reads a rank file: a token in base64, a space and its rank on each line. Errors name the line.
func ReadTiktoken(r io.Reader) (*Vocabulary, error) {
	var tokens [][]byte
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		token, rank, err := parseRank(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		for len(tokens) <= rank {
			tokens = append(tokens, nil)
		}
		if tokens[rank] != nil {
			return nil, fmt.Errorf("line %d: rank %d is there twice", number, rank)
		}
		tokens[rank] = token
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read ranks: %w", err)
	}
	return fromTokens(tokens)
}

func parseRank(line []byte) (token []byte, rank int, err error) {
	spelling, number, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return nil, 0, errors.New("parse rank: want a token in base64, a space and its rank")
	}
	token, err = base64.StdEncoding.AppendDecode(nil, spelling)
	if err != nil {
		return nil, 0, fmt.Errorf("parse rank: the token is not base64: %w", err)
	}
	if len(token) == 0 {
		return nil, 0, errors.New("parse rank: the token is empty")
	}
	rank, err = strconv.Atoi(string(number))
	if err != nil || rank < 0 || rank >= MaxTokens {
		return nil, 0, fmt.Errorf("parse rank: %q is not a number from 0 to %d", number, MaxTokens-1)
	}
	return token, rank, nil
}
