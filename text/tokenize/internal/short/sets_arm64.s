#include "textflag.h"

// func prefetch(sets *set, mask uint64, queries *Query, n int)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVD sets+0(FP), R0
	MOVD mask+8(FP), R1
	MOVD queries+16(FP), R2
	MOVD n+24(FP), R4
	CMP  $0, R4
	BLE  done
loop:
	MOVD 16(R2), R5
	AND  R1, R5, R5
	ADD  R5<<6, R0, R6
	PRFM (R6), PLDL1KEEP
	ADD  $24, R2, R2
	SUB  $1, R4, R4
	CBNZ R4, loop
done:
	RET
