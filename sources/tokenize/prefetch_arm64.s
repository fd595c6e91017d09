#include "textflag.h"

// func prefetch(sets *shortPieces, queries *shortQuery, n int)
TEXT ·prefetch(SB), NOSPLIT, $0-24
	MOVD sets+0(FP), R0
	MOVD queries+8(FP), R1
	MOVD n+16(FP), R2
	CBZ  R2, done
loop:
	MOVD 16(R1), R3        // shortQuery.hash
	AND  $0xffff, R3       // % shortSets
	ADD  R3<<6, R0, R4     // sets of 64 bytes
	PRFM (R4), PLDL1KEEP
	ADD  $24, R1           // unsafe.Sizeof(shortQuery{})
	SUB  $1, R2
	CBNZ R2, loop
done:
	RET
