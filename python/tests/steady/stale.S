/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A machine that maps a page elsewhere without telling the processor, uses others that have the same
 * place in a table of 64, 128 or 256 translations, and tells whether it sees the page as before (o)
 * or as it is now (n), again and again.
 */
#include "boot.h"

#define ROUNDS 8
#define PAGE_BITS 12
#define PRESENT_AND_WRITABLE 3
#define TABLES 8
#define ENTRIES 1024
/* Far from code, stack and tables in a table of 64, too. */
#define PAGE 0x220
#define OTHER_PAGE 0x221
#define PAGE_ENTRY (tables + PAGE * 4)
/* More than QEMU keeps of what it has replaced. */
#define RIVALS 12

run:
    /* Each address means itself. */
    mov $tables, %edi
    mov $PRESENT_AND_WRITABLE, %eax
    mov $(TABLES * ENTRIES), %ecx
1:  mov %eax, (%edi)
    add $(1 << PAGE_BITS), %eax
    add $4, %edi
    loop 1b
    mov $(tables + PRESENT_AND_WRITABLE), %eax
    mov $directory, %edi
    mov $TABLES, %ecx
1:  mov %eax, (%edi)
    add $(ENTRIES * 4), %eax
    add $4, %edi
    loop 1b
    movb $'o', PAGE << PAGE_BITS
    movb $'n', OTHER_PAGE << PAGE_BITS
    mov $directory, %eax
    mov %eax, %cr3
    mov %cr0, %eax
    or $0x80000000, %eax
    mov %eax, %cr0

    mov $ROUNDS, %edi
next:
    mov $64, %ebx
    call see
    mov $128, %ebx
    call see
    mov $256, %ebx
    call see
    mov $'\n', %al
    call say
    dec %edi
    jnz next
    ret

/* Says what is seen after uses of pages with the same place in a table of so many, and no larger. */
see:
    mov %cr3, %eax
    mov %eax, %cr3
    mov PAGE << PAGE_BITS, %al
    movl $((OTHER_PAGE << PAGE_BITS) + PRESENT_AND_WRITABLE), PAGE_ENTRY
    shl $PAGE_BITS, %ebx
    lea PAGE << PAGE_BITS(%ebx), %esi
    mov $RIVALS, %ecx
1:  mov (%esi), %al
    lea (%esi, %ebx, 2), %esi
    loop 1b
    mov PAGE << PAGE_BITS, %al
    movl $((PAGE << PAGE_BITS) + PRESENT_AND_WRITABLE), PAGE_ENTRY
    jmp say

    .section .bss
    .align 4096
directory: .skip ENTRIES * 4
tables: .skip TABLES * ENTRIES * 4
