/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A machine with two processors that hand a word to each other, and wait for it busily. The first
 * tells whether it came back (y) or did not while it looked very often (n), again and again.
 */
#include "boot.h"

#define ROUNDS 40
/* 6 ms at 500 million instructions a second: three for each look. */
#define LOOKS 1000000
#define APIC 0xfee00000
#define APIC_COMMAND (APIC + 0x300)
#define ALL_OTHERS_INIT 0xc4500
#define ALL_OTHERS_START 0xc4600
/* Where the second processor starts, in real mode: a page below 1 MiB. */
#define START 0x8000
/* Below 64 KiB, so that both reach it. */
#define WORD 0x9000
#define PAGE_BITS 12

run:
    mov $second, %esi
    mov $START, %edi
    mov $(second_end - second), %ecx
    rep movsb
    movl $ALL_OTHERS_INIT, APIC_COMMAND
    movl $(ALL_OTHERS_START | START >> PAGE_BITS), APIC_COMMAND

    mov $ROUNDS, %edi
next:
    movl $1, WORD
    mov $LOOKS, %ecx
1:  cmpl $0, WORD
    je 2f
    dec %ecx
    jnz 1b
2:  mov $'y', %al
    cmpl $0, WORD
    je 3f
    mov $'n', %al
3:  call say
    mov $'\n', %al
    call say
    dec %edi
    jnz next
    ret

    .code16
second:
    cli
    xor %ax, %ax
    mov %ax, %ds
1:  cmpl $0, WORD
    je 1b
    movl $0, WORD
    jmp 1b
second_end:
    .code32
