#include "textflag.h"

// func Sets(table unsafe.Pointer, mask uint64, hash *uint64, stride uintptr, n int)
TEXT ·Sets(SB), NOSPLIT, $0-40
	MOVQ  table+0(FP), AX
	MOVQ  mask+8(FP), BX
	MOVQ  hash+16(FP), CX
	MOVQ  stride+24(FP), DI
	MOVQ  n+32(FP), DX
	TESTQ DX, DX
	JLE   done
loop:
	MOVQ       (CX), SI
	ANDQ       BX, SI
	SHLQ       $6, SI
	PREFETCHT0 (AX)(SI*1)
	ADDQ       DI, CX
	DECQ       DX
	JNZ        loop
done:
	RET
