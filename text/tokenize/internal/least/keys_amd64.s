#include "textflag.h"

// func ofVectors(keys *uint32, rows int) uint32
TEXT ·ofVectors(SB), NOSPLIT, $0-20
	MOVQ    keys+0(FP), SI
	MOVQ    rows+8(FP), CX
	VMOVDQU (SI), Y0
	VPMINUD 32(SI), Y0, Y0
	JMP     next
row:
	VPMINUD (SI), Y0, Y0
	VPMINUD 32(SI), Y0, Y0
next:
	ADDQ $64, SI
	DECQ CX
	JNZ  row
	VEXTRACTI128 $1, Y0, X1
	VPMINUD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPMINUD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPMINUD X1, X0, X0
	VMOVD   X0, AX
	MOVL    AX, ret+16(FP)
	VZEROUPPER
	RET
