/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A machine that halts, is woken by its timer, and tells when that was, again and again, by the
 * processor's counter, in hexadecimal.
 */
#include "boot.h"

#define WAKES 40
#define TIMER_VECTOR 0x20

run:
    lgdt gdt_pointer
    ljmp $8, $1f
1:  mov $16, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov $on_timer, %eax
    mov %ax, idt + TIMER_VECTOR * 8
    movw $8, idt + TIMER_VECTOR * 8 + 2
    movw $0x8e00, idt + TIMER_VECTOR * 8 + 4
    shr $16, %eax
    mov %ax, idt + TIMER_VECTOR * 8 + 6
    lidt idt_pointer

    /* Interrupt controllers: the timer's only, at its vector. */
    mov $0x11, %al
    out %al, $0x20
    mov $TIMER_VECTOR, %al
    out %al, $0x21
    mov $4, %al
    out %al, $0x21
    mov $1, %al
    out %al, $0x21
    mov $0xfe, %al
    out %al, $0x21
    mov $0xff, %al
    out %al, $0xa1
    /* The timer: 1,000 times a second. */
    mov $0x34, %al
    out %al, $0x43
    mov $(1193 & 0xff), %al
    out %al, $0x40
    mov $(1193 >> 8), %al
    out %al, $0x40

    mov $WAKES, %edi
next:
    /* Work since QEMU was last asked for the time, by the serial line. */
    mov $1000, %ecx
1:  loop 1b
    sti
    hlt
    cli
    rdtsc
    mov %eax, %ebx
    mov $8, %ecx
digit:
    rol $4, %ebx
    mov %ebx, %eax
    and $15, %eax
    mov digits(%eax), %al
    call say
    loop digit
    mov $'\n', %al
    call say
    dec %edi
    jnz next
    ret

on_timer:
    push %eax
    mov $0x20, %al
    out %al, $0x20
    pop %eax
    iret

    .section .rodata
digits: .ascii "0123456789abcdef"
    .align 8
gdt: .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
gdt_pointer: .word . - gdt - 1
    .long gdt
idt_pointer: .word 33 * 8 - 1
    .long idt

    .section .bss
    .align 16
idt: .skip 33 * 8
