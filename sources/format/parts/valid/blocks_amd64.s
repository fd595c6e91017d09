#include "textflag.h"

// The algorithm is that of Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte" (2021). Each
// table gives the errors that a half of a byte allows. A pair of bytes has the errors that all three tables give:
//
//	0x01 a leading byte without its continuation	0x10 a surrogate
//	0x02 a continuation behind ASCII            	0x20 two bytes for ASCII
//	0x04 three bytes for less than U+0800       	0x40 four bytes for less than U+10000, or far above U+10FFFF
//	0x08 above U+10FFFF                         	0x80 two continuations, right only in three and four bytes

// by the high half of the first byte
DATA firstHigh<>+0x00(SB)/8, $0x0202020202020202
DATA firstHigh<>+0x08(SB)/8, $0x4915012180808080
DATA firstHigh<>+0x10(SB)/8, $0x0202020202020202
DATA firstHigh<>+0x18(SB)/8, $0x4915012180808080
GLOBL firstHigh<>(SB), (NOPTR+RODATA), $32

// by the low half of the first byte
DATA firstLow<>+0x00(SB)/8, $0xcbcbcb8b8383a3e7
DATA firstLow<>+0x08(SB)/8, $0xcbcbdbcbcbcbcbcb
DATA firstLow<>+0x10(SB)/8, $0xcbcbcb8b8383a3e7
DATA firstLow<>+0x18(SB)/8, $0xcbcbdbcbcbcbcbcb
GLOBL firstLow<>(SB), (NOPTR+RODATA), $32

// by the high half of the second byte
DATA secondHigh<>+0x00(SB)/8, $0x0101010101010101
DATA secondHigh<>+0x08(SB)/8, $0x01010101babaaee6
DATA secondHigh<>+0x10(SB)/8, $0x0101010101010101
DATA secondHigh<>+0x18(SB)/8, $0x01010101babaaee6
GLOBL secondHigh<>(SB), (NOPTR+RODATA), $32

// A byte above its limit is a leading byte too near to the end of 32 bytes for its character.
DATA complete<>+0x00(SB)/8, $0xffffffffffffffff
DATA complete<>+0x08(SB)/8, $0xffffffffffffffff
DATA complete<>+0x10(SB)/8, $0xffffffffffffffff
DATA complete<>+0x18(SB)/8, $0xbfdfefffffffffff
GLOBL complete<>(SB), (NOPTR+RODATA), $32

DATA nibble<>+0x00(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA nibble<>+0x08(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA nibble<>+0x10(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA nibble<>+0x18(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL nibble<>(SB), (NOPTR+RODATA), $32

DATA third<>+0x00(SB)/8, $0x6060606060606060
DATA third<>+0x08(SB)/8, $0x6060606060606060
DATA third<>+0x10(SB)/8, $0x6060606060606060
DATA third<>+0x18(SB)/8, $0x6060606060606060
GLOBL third<>(SB), (NOPTR+RODATA), $32

DATA fourth<>+0x00(SB)/8, $0x7070707070707070
DATA fourth<>+0x08(SB)/8, $0x7070707070707070
DATA fourth<>+0x10(SB)/8, $0x7070707070707070
DATA fourth<>+0x18(SB)/8, $0x7070707070707070
GLOBL fourth<>(SB), (NOPTR+RODATA), $32

DATA top<>+0x00(SB)/8, $0x8080808080808080
DATA top<>+0x08(SB)/8, $0x8080808080808080
DATA top<>+0x10(SB)/8, $0x8080808080808080
DATA top<>+0x18(SB)/8, $0x8080808080808080
GLOBL top<>(SB), (NOPTR+RODATA), $32

// CHECK adds the errors of 32 bytes to Y8. before are the 32 bytes in front of them. It spoils Y10 to Y15.
#define CHECK(before, bytes) \
	VPERM2I128 $0x21, bytes, before, Y10; \
	VPALIGNR $15, Y10, bytes, Y11; \
	VPSRLW $4, Y11, Y12; \
	VPAND Y4, Y12, Y12; \
	VPSHUFB Y12, Y0, Y12; \
	VPAND Y4, Y11, Y11; \
	VPSHUFB Y11, Y1, Y11; \
	VPAND Y11, Y12, Y12; \
	VPSRLW $4, bytes, Y13; \
	VPAND Y4, Y13, Y13; \
	VPSHUFB Y13, Y2, Y13; \
	VPAND Y13, Y12, Y12; \
	VPALIGNR $14, Y10, bytes, Y14; \
	VPSUBUSB Y5, Y14, Y14; \
	VPALIGNR $13, Y10, bytes, Y15; \
	VPSUBUSB Y6, Y15, Y15; \
	VPOR Y14, Y15, Y14; \
	VPAND Y7, Y14, Y14; \
	VPXOR Y12, Y14, Y14; \
	VPOR Y14, Y8, Y8

// func validBlocks(p *byte, n int) bool
TEXT ·validBlocks(SB), NOSPLIT, $0-17
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	ADDQ SI, CX
	VMOVDQU firstHigh<>(SB), Y0
	VMOVDQU firstLow<>(SB), Y1
	VMOVDQU secondHigh<>(SB), Y2
	VMOVDQU nibble<>(SB), Y4
	VMOVDQU third<>(SB), Y5
	VMOVDQU fourth<>(SB), Y6
	VMOVDQU top<>(SB), Y7
	VPXOR Y8, Y8, Y8 // errors
	VPXOR Y9, Y9, Y9 // the 32 bytes before

block:
	VMOVDQU (SI), Y3
	VMOVDQU 32(SI), Y10
	VPOR Y3, Y10, Y11
	VPMOVMSKB Y11, AX
	TESTL AX, AX
	JNE mixed

	// ASCII: the characters before must have ended
	VPSUBUSB complete<>(SB), Y9, Y9
	VPOR Y9, Y8, Y8
	VMOVDQA Y10, Y9
	ADDQ $64, SI
	CMPQ SI, CX
	JNE block
	JMP end

mixed:
	CHECK(Y9, Y3)
	VMOVDQU 32(SI), Y9
	CHECK(Y3, Y9)
	ADDQ $64, SI
	CMPQ SI, CX
	JNE block

end:
	VPTEST Y8, Y8
	SETEQ ret+16(FP)
	VZEROUPPER
	RET
