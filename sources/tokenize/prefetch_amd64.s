#include "textflag.h"

// func prefetch(sets *shortPieces, queries *shortQuery, n int)
TEXT ·prefetch(SB), NOSPLIT, $0-24
	MOVQ  sets+0(FP), AX
	MOVQ  queries+8(FP), CX
	MOVQ  n+16(FP), DX
	TESTQ DX, DX
	JLE   done
loop:
	MOVWLZX    16(CX), SI      // shortQuery.hash % shortSets
	SHLQ       $6, SI          // sets of 64 bytes
	PREFETCHT0 (AX)(SI*1)
	ADDQ       $24, CX         // unsafe.Sizeof(shortQuery{})
	DECQ       DX
	JNZ        loop
done:
	RET
