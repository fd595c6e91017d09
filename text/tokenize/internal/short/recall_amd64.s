#include "go_asm.h"
#include "textflag.h"

// The factors of Key.Hash.
DATA hash<>+0(SB)/8, $0xa0761d6478bd642f
DATA hash<>+8(SB)/8, $0xe7037ed1a0b428db
GLOBL hash<>(SB), RODATA|NOPTR, $16

// The mask of the longest pieces.
DATA longest<>+0(SB)/8, $16
GLOBL longest<>(SB), RODATA|NOPTR, $8

// The bits of the tokens, without their number.
DATA tokens<>+0(SB)/8, $0xffffffffffffffff
DATA tokens<>+8(SB)/8, $0x00ffffffffffffff
GLOBL tokens<>(SB), RODATA|NOPTR, $16

// func ask(p *Pieces, queries *Query, text *byte, pos int, ends *int, n int)
TEXT ·ask(SB), NOSPLIT, $0-48
	MOVQ p+0(FP), AX
	MOVQ queries+8(FP), DI
	MOVQ text+16(FP), SI
	MOVQ pos+24(FP), R9
	MOVQ ends+32(FP), R8
	MOVQ n+40(FP), R12
	LEAQ (R8)(R12*8), R12
	LEAQ Pieces_masks(AX), R10
	MOVQ Pieces_mask(AX), R13
	MOVQ Pieces_sets(AX), R14
loop:
	MOVQ    (R8), BX
	MOVQ    BX, CX
	SUBQ    R9, CX
	CMPQ    CX, longest<>(SB)
	CMOVQHI longest<>(SB), CX
	SHLQ    $5, CX
	MOVQ    (SI)(R9*1), AX
	MOVQ    8(SI)(R9*1), R11
	ANDQ    (R10)(CX*1), AX
	ANDQ    8(R10)(CX*1), R11
	ORQ     16(R10)(CX*1), R11
	MOVQ    AX, (DI)
	MOVQ    R11, 8(DI)
	XORQ    hash<>+0(SB), AX
	XORQ    hash<>+8(SB), R11
	MULQ    R11
	XORQ    DX, AX
	MOVQ    AX, 16(DI)
	ANDQ    R13, AX
	SHLQ    $6, AX
	PREFETCHT0 (R14)(AX*1)
	MOVQ    BX, R9
	ADDQ    $24, DI
	ADDQ    $8, R8
	CMPQ    R8, R12
	JNE     loop
	RET

// func recall(p *Pieces, queries *Query, first, end int, found *uint32, n int) (next, count int)
TEXT ·recall(SB), NOSPLIT, $0-64
	MOVQ  p+0(FP), AX
	MOVQ  queries+8(FP), SI
	MOVQ  first+16(FP), R8
	MOVQ  end+24(FP), R12
	MOVQ  found+32(FP), R11
	MOVQ  n+40(FP), DX
	LEAQ  (R11)(DX*4), DI
	LEAQ  (R8)(R8*2), CX
	LEAQ  (SI)(CX*8), SI
	MOVQ  Pieces_mask(AX), R10
	MOVQ  Pieces_sets(AX), R9
	MOVOU tokens<>(SB), X3
loop:
	MOVQ 16(SI), AX
	ANDQ R10, AX
	SHLQ $6, AX
	ADDQ R9, AX
	MOVQ (SI), BX
	MOVQ 8(SI), CX
	CMPQ (AX), BX
	JNE  second
	CMPQ 8(AX), CX
	JNE  second
known:
	MOVBQZX 31(AX), DX
	CMPQ    DX, $const_Tokens
	JHI     done
	MOVOU   16(AX), X0
	PAND    X3, X0
	MOVOU   X0, (DI)
	LEAQ    (DI)(DX*4), DI
	ADDQ    $24, SI
	INCQ    R8
	CMPQ    R8, R12
	JLT     loop
done:
	MOVQ R8, next+48(FP)
	SUBQ R11, DI
	SHRQ $2, DI
	MOVQ DI, count+56(FP)
	RET
second:
	CMPQ  32(AX), BX
	JNE   done
	CMPQ  40(AX), CX
	JNE   done
	MOVOU (AX), X0
	MOVOU 16(AX), X1
	MOVOU 32(AX), X2
	MOVOU 48(AX), X4
	MOVOU X2, (AX)
	MOVOU X4, 16(AX)
	MOVOU X0, 32(AX)
	MOVOU X1, 48(AX)
	JMP   known
