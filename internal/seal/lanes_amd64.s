#include "textflag.h"

DATA iv<>+0x00(SB)/8, $0x6a09e667f3bcc908
DATA iv<>+0x08(SB)/8, $0xbb67ae8584caa73b
DATA iv<>+0x10(SB)/8, $0x3c6ef372fe94f82b
DATA iv<>+0x18(SB)/8, $0xa54ff53a5f1d36f1
DATA iv<>+0x20(SB)/8, $0x510e527fade682d1
DATA iv<>+0x28(SB)/8, $0x9b05688c2b3e6c1f
DATA iv<>+0x30(SB)/8, $0x1f83d9abfb41bd6b
DATA iv<>+0x38(SB)/8, $0x5be0cd19137e2179
GLOBL iv<>(SB), (NOPTR+RODATA), $64

// The distance of each lane's block from the first one.
DATA distance<>+0x00(SB)/8, $0
DATA distance<>+0x08(SB)/8, $128
DATA distance<>+0x10(SB)/8, $256
DATA distance<>+0x18(SB)/8, $384
DATA distance<>+0x20(SB)/8, $512
DATA distance<>+0x28(SB)/8, $640
DATA distance<>+0x30(SB)/8, $768
DATA distance<>+0x38(SB)/8, $896
GLOBL distance<>(SB), (NOPTR+RODATA), $64

// LOAD reads word n of the message of every lane.
#define LOAD(n, m) \
	KXNORB K1, K1, K1; \
	VPGATHERQQ (n*8)(BX)(Z0*1), K1, m

// G is the mixing function of RFC 7693, section 3.1, in eight lanes.
#define G(a, b, c, d, x, y) \
	VPADDQ x, a, a; \
	VPADDQ b, a, a; \
	VPXORQ a, d, d; \
	VPRORQ $32, d, d; \
	VPADDQ d, c, c; \
	VPXORQ c, b, b; \
	VPRORQ $24, b, b; \
	VPADDQ y, a, a; \
	VPADDQ b, a, a; \
	VPXORQ a, d, d; \
	VPRORQ $16, d, d; \
	VPADDQ d, c, c; \
	VPXORQ c, b, b; \
	VPRORQ $63, b, b

// ROUND mixes the words of the state, first in columns, then in diagonals.
#define ROUND(m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15) \
	G(Z0, Z4, Z8, Z12, m0, m1); \
	G(Z1, Z5, Z9, Z13, m2, m3); \
	G(Z2, Z6, Z10, Z14, m4, m5); \
	G(Z3, Z7, Z11, Z15, m6, m7); \
	G(Z0, Z5, Z10, Z15, m8, m9); \
	G(Z1, Z6, Z11, Z12, m10, m11); \
	G(Z2, Z7, Z8, Z13, m12, m13); \
	G(Z3, Z4, Z9, Z14, m14, m15)

// FINISH adds words i and i+8 of the state to word i of the hash.
#define FINISH(i, low, high) \
	VPXORQ high, low, low; \
	VPXORQ (i*64)(AX), low, low; \
	VMOVDQU64 low, (i*64)(AX)

// func compress(s *lanes, blocks *[width][blockSize]byte)
TEXT ·compress(SB), NOSPLIT, $0-16
	MOVQ s+0(FP), AX
	MOVQ blocks+8(FP), BX

	VMOVDQU64 distance<>(SB), Z0
	LOAD(0, Z16)
	LOAD(1, Z17)
	LOAD(2, Z18)
	LOAD(3, Z19)
	LOAD(4, Z20)
	LOAD(5, Z21)
	LOAD(6, Z22)
	LOAD(7, Z23)
	LOAD(8, Z24)
	LOAD(9, Z25)
	LOAD(10, Z26)
	LOAD(11, Z27)
	LOAD(12, Z28)
	LOAD(13, Z29)
	LOAD(14, Z30)
	LOAD(15, Z31)

	VMOVDQU64 0(AX), Z0
	VMOVDQU64 64(AX), Z1
	VMOVDQU64 128(AX), Z2
	VMOVDQU64 192(AX), Z3
	VMOVDQU64 256(AX), Z4
	VMOVDQU64 320(AX), Z5
	VMOVDQU64 384(AX), Z6
	VMOVDQU64 448(AX), Z7
	VPBROADCASTQ iv<>+0(SB), Z8
	VPBROADCASTQ iv<>+8(SB), Z9
	VPBROADCASTQ iv<>+16(SB), Z10
	VPBROADCASTQ iv<>+24(SB), Z11
	VPBROADCASTQ iv<>+32(SB), Z12
	VPBROADCASTQ iv<>+40(SB), Z13
	VPBROADCASTQ iv<>+48(SB), Z14
	VPBROADCASTQ iv<>+56(SB), Z15
	VPXORQ 512(AX), Z12, Z12
	VPXORQ 576(AX), Z14, Z14

	ROUND(Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31)
	ROUND(Z30, Z26, Z20, Z24, Z25, Z31, Z29, Z22, Z17, Z28, Z16, Z18, Z27, Z23, Z21, Z19)
	ROUND(Z27, Z24, Z28, Z16, Z21, Z18, Z31, Z29, Z26, Z30, Z19, Z22, Z23, Z17, Z25, Z20)
	ROUND(Z23, Z25, Z19, Z17, Z29, Z28, Z27, Z30, Z18, Z22, Z21, Z26, Z20, Z16, Z31, Z24)
	ROUND(Z25, Z16, Z21, Z23, Z18, Z20, Z26, Z31, Z30, Z17, Z27, Z28, Z22, Z24, Z19, Z29)
	ROUND(Z18, Z28, Z22, Z26, Z16, Z27, Z24, Z19, Z20, Z29, Z23, Z21, Z31, Z30, Z17, Z25)
	ROUND(Z28, Z21, Z17, Z31, Z30, Z29, Z20, Z26, Z16, Z23, Z22, Z19, Z25, Z18, Z24, Z27)
	ROUND(Z29, Z27, Z23, Z30, Z28, Z17, Z19, Z25, Z21, Z16, Z31, Z20, Z24, Z22, Z18, Z26)
	ROUND(Z22, Z31, Z30, Z25, Z27, Z19, Z16, Z24, Z28, Z18, Z29, Z23, Z17, Z20, Z26, Z21)
	ROUND(Z26, Z18, Z24, Z20, Z23, Z22, Z17, Z21, Z31, Z27, Z25, Z30, Z19, Z28, Z29, Z16)
	ROUND(Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31)
	ROUND(Z30, Z26, Z20, Z24, Z25, Z31, Z29, Z22, Z17, Z28, Z16, Z18, Z27, Z23, Z21, Z19)

	FINISH(0, Z0, Z8)
	FINISH(1, Z1, Z9)
	FINISH(2, Z2, Z10)
	FINISH(3, Z3, Z11)
	FINISH(4, Z4, Z12)
	FINISH(5, Z5, Z13)
	FINISH(6, Z6, Z14)
	FINISH(7, Z7, Z15)
	VZEROUPPER
	RET
