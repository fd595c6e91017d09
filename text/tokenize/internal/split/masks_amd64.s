#include "go_asm.h"
#include "textflag.h"

// Each constant is a byte that an instruction spreads over a vector.
DATA constants<>+0(SB)/8, $"aA0\t\n\r '"
DATA constants<>+8(SB)/8, $"/\xc0\xe0\xf0\x19\x09\x04\x00"
GLOBL constants<>(SB), RODATA|NOPTR, $16

// STORE gathers the highest bits of the bytes of two vectors.
#define STORE(first, second, mask) \
	VPMOVMSKB first, AX; \
	VPMOVMSKB second, CX; \
	SHLQ      $32, CX; \
	ORQ       CX, AX; \
	MOVQ      AX, mask(DI)

#define SPREAD(constant, to) VPBROADCASTB constants<>+constant(SB), to

#define EQUAL(constant) \
	SPREAD(constant, Y2); \
	VPCMPEQB Y2, Y0, Y3; \
	VPCMPEQB Y2, Y1, Y4

// WITHIN finds the bytes from a constant on whose distance to it is at most another constant.
#define WITHIN(from, width) \
	SPREAD(from, Y2); \
	SPREAD(width, Y5); \
	VPSUBB   Y2, Y0, Y3; \
	VPSUBB   Y2, Y1, Y4; \
	VPMINUB  Y5, Y3, Y6; \
	VPMINUB  Y5, Y4, Y7; \
	VPCMPEQB Y6, Y3, Y3; \
	VPCMPEQB Y7, Y4, Y4

#define ATLEAST(constant) \
	SPREAD(constant, Y2); \
	VPMAXUB  Y2, Y0, Y3; \
	VPMAXUB  Y2, Y1, Y4; \
	VPCMPEQB Y0, Y3, Y3; \
	VPCMPEQB Y1, Y4, Y4

// func classifyVectors(t *[blockWidth]byte, m *masks)
TEXT ·classifyVectors(SB), NOSPLIT, $0-16
	MOVQ t+0(FP), SI
	MOVQ m+8(FP), DI
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1

	WITHIN(1, 12)
	VMOVDQA Y3, Y8
	VMOVDQA Y4, Y9
	STORE(Y3, Y4, masks_uppers)
	WITHIN(0, 12)
	VPOR Y3, Y8, Y3
	VPOR Y4, Y9, Y4
	STORE(Y3, Y4, masks_letters)
	WITHIN(2, 13)
	STORE(Y3, Y4, masks_numbers)
	EQUAL(6)
	VMOVDQA Y3, Y8
	VMOVDQA Y4, Y9
	STORE(Y3, Y4, masks_blanks)
	WITHIN(3, 14)
	VPOR Y3, Y8, Y3
	VPOR Y4, Y9, Y4
	STORE(Y3, Y4, masks_spaces)
	EQUAL(4)
	VMOVDQA Y3, Y8
	VMOVDQA Y4, Y9
	EQUAL(5)
	VPOR Y3, Y8, Y3
	VPOR Y4, Y9, Y4
	STORE(Y3, Y4, masks_lines)
	EQUAL(7)
	STORE(Y3, Y4, masks_quotes)
	EQUAL(8)
	STORE(Y3, Y4, masks_slashes)
	STORE(Y0, Y1, masks_beyond)
	TESTQ AX, AX
	JZ    done

	MOVQ AX, DX
	ATLEAST(9)
	STORE(Y3, Y4, masks_inner)
	XORQ AX, DX // the bytes beyond ASCII that are below 0xc0
	MOVQ DX, masks_inner(DI)
	ATLEAST(10)
	STORE(Y3, Y4, masks_threes)
	ATLEAST(11)
	STORE(Y3, Y4, masks_fours)
done:
	VZEROUPPER
	RET
