#include "textflag.h"

// func Sets(table unsafe.Pointer, mask uint64, hash *uint64, stride uintptr, n int)
TEXT ·Sets(SB), NOSPLIT, $0-40
	MOVD table+0(FP), R0
	MOVD mask+8(FP), R1
	MOVD hash+16(FP), R2
	MOVD stride+24(FP), R3
	MOVD n+32(FP), R4
	CMP  $0, R4
	BLE  done
loop:
	MOVD (R2), R5
	AND  R1, R5, R5
	ADD  R5<<6, R0, R6
	PRFM (R6), PLDL1KEEP
	ADD  R3, R2, R2
	SUB  $1, R4, R4
	CBNZ R4, loop
done:
	RET
