#include "textflag.h"

// The characters of escapes of two bytes, by the second byte; 0 if there is no such escape.
DATA escapes<>+0x20(SB)/8, $0x0000000000220000
DATA escapes<>+0x28(SB)/8, $0x2f00000000000000
DATA escapes<>+0x58(SB)/8, $0x0000005c00000000
DATA escapes<>+0x60(SB)/8, $0x000c000000080000
DATA escapes<>+0x68(SB)/8, $0x000a000000000000
DATA escapes<>+0x70(SB)/8, $0x00000009000d0000
GLOBL escapes<>(SB), (NOPTR+RODATA), $256

DATA quote<>+0x00(SB)/1, $'"'
GLOBL quote<>(SB), (NOPTR+RODATA), $1
DATA slash<>+0x00(SB)/1, $'\\'
GLOBL slash<>(SB), (NOPTR+RODATA), $1
DATA control<>+0x00(SB)/1, $0x1f
GLOBL control<>(SB), (NOPTR+RODATA), $1

// MARK sets the bytes of m that are a quote, a backslash or a control character in b.
#define MARK(b, m, spare) \
	VPCMPEQB Y13, b, m; \
	VPCMPEQB Y14, b, spare; \
	VPOR spare, m, m; \
	VPMINUB Y15, b, spare; \
	VPCMPEQB b, spare, spare; \
	VPOR spare, m, m

// func unquoteBlocks(out, in *byte, n int) (read, wrote int)
TEXT ·unquoteBlocks(SB), NOSPLIT, $0-40
	MOVQ out+0(FP), DI
	MOVQ in+8(FP), SI
	MOVQ n+16(FP), CX
	LEAQ -130(SI)(CX*1), CX // the last place where a block may begin
	MOVQ DI, R8
	MOVQ SI, R9
	LEAQ escapes<>(SB), R14
	VPBROADCASTB quote<>(SB), Y13
	VPBROADCASTB slash<>(SB), Y14
	VPBROADCASTB control<>(SB), Y15

block:
	CMPQ SI, CX
	JHI done
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	MARK(Y0, Y2, Y3)
	MARK(Y1, Y4, Y5)
	VPMOVMSKB Y2, AX
	VPMOVMSKB Y4, DX
	SHLQ $32, DX
	ORQ DX, AX
	JNE marked
	ADDQ $64, SI
	ADDQ $64, DI
	JMP block

marked:
	MOVQ SI, R10     // the block
	LEAQ 64(SI), R11 // its end

next:
	TZCNTQ AX, BX
	LEAQ (R10)(BX*1), R12
	SUBQ SI, DI
	ADDQ R12, DI
	MOVQ R12, SI
	CMPB (SI), $'\\'
	JNE done
	MOVBLZX 1(SI), DX
	MOVBLZX (R14)(DX*1), DX
	TESTL DX, DX
	JEQ done
	MOVB DX, (DI)
	INCQ DI
	ADDQ $2, SI
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	MOVQ $-4, R13 // both bytes of the escape have no marks any more
	SHLXQ BX, R13, R13
	ANDQ R13, AX
	JNE next
	CMPQ SI, R11
	JCC block
	SUBQ SI, DI
	ADDQ R11, DI
	MOVQ R11, SI
	JMP block

done:
	SUBQ R9, SI
	SUBQ R8, DI
	MOVQ SI, read+24(FP)
	MOVQ DI, wrote+32(FP)
	VZEROUPPER
	RET
