/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A machine without a system: boots by Multiboot, calls `run`, and ends through QEMU's
 * isa-debug-exit. `say` writes %al on the serial line.
 */
    .code32
    .section .text
    .align 4
multiboot:
    .long 0x1badb002, 0, -0x1badb002

    .globl _start
_start:
    mov $stack, %esp
    call run
    mov $0, %al
    out %al, $0xf4
1:  hlt
    jmp 1b

say:
    mov $0x3f8, %dx
    out %al, %dx
    ret

    .section .bss
    .align 16
    .skip 4096
stack:
    .section .text
