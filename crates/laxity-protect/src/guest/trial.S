// A program that QEMU runs in place of a firmware, to find out whether an accelerator runs what an operating system
// needs: 64-bit mode with paging, vector instructions and those that the processor says it has, a timer's interrupt, a
// page fault and a system call of a user's program. It says RAN at the port of QEMU's isa-debug-exit, which ends QEMU,
// or FAILED.
//
// Some computers have a KVM that runs only kernels made for it (PVM): there the device can be opened and makes
// machines, and Linux dies at one of the first instructions that KVM has to emulate.
//
// The file is the last 64 KiB below 4 GiB, where a processor begins, and copies itself to BASE, where it is linked.

#define BASE 0x20000
#define IMAGE_BYTES 0x10000
// The four tables of pages.
#define PML4 0x30000
#define PDPT 0x31000
#define LOWEST 0x32000
#define FOURTH 0x33000
#define KERNEL_STACK 0x40000
#define USER_STACK 0x48000
// Beyond the first large page.
#define MISSING 0x400000

#define PORT 0xf4
#define RAN 0x2a
#define FAILED 0x15

#define KERNEL_CODE 0x10
#define DATA 0x18
#define TASK 0x38
#define USER_SELECTORS 0x20

#define APIC 0xfee00000
#define TIMER_VECTOR 32
#define PAGE_FAULT 14

#define MSR_EFER 0xc0000080
#define MSR_STAR 0xc0000081
#define MSR_LSTAR 0xc0000082
#define MSR_SFMASK 0xc0000084

.macro vectors
    movl $7, %ecx
    movd %ecx, %xmm0
    paddd %xmm0, %xmm0
    movd %xmm0, %eax
    cmpl $14, %eax
    jne fail
.endm

    .code16
    .globl _start
_start:
    cli
    cld
    movw $0xf000, %ax
    movw %ax, %ds
    movw $(BASE >> 4), %ax
    movw %ax, %es
    xorw %si, %si
    xorw %di, %di
    movw $(IMAGE_BYTES / 4), %cx
    rep movsl
    movw %ax, %ds
    lgdtl segments_pointer - _start
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $8, $protected

    .code32
protected:
    movl $DATA, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl $(PDPT + 7), PML4
    movl $(LOWEST + 7), PDPT
    movl $(FOURTH + 7), PDPT + 3 * 8
    movl $0x87, LOWEST
    // The page of the APIC is not cached.
    movl $(APIC + 0x9b), FOURTH + ((APIC >> 21) & 511) * 8
    // PAE, and vector registers.
    movl $0x620, %eax
    movl %eax, %cr4
    movl $PML4, %eax
    movl %eax, %cr3
    movl $MSR_EFER, %ecx
    rdmsr
    // System calls, and 64-bit mode.
    orl $0x101, %eax
    wrmsr
    movl $0x80010033, %eax
    movl %eax, %cr0
    ljmpl $KERNEL_CODE, $long

    .code64
long:
    movl $KERNEL_STACK, %esp
    lidt gates_pointer
    movw $TASK, %ax
    ltr %ax
    vectors

    // shlx, of BMI2: Linux unpacks itself by it.
    xorl %eax, %eax
    cpuid
    cmpl $7, %eax
    jb 1f
    movl $7, %eax
    xorl %ecx, %ecx
    cpuid
    btl $8, %ebx
    jnc 1f
    movl $1, %eax
    movl $5, %ecx
    shlx %ecx, %eax, %edx
    cmpl $32, %edx
    jne fail
1:
    movl $APIC, %ebx
    movl $0x1ff, 0xf0(%rbx)
    movl $0xb, 0x3e0(%rbx)
    movl $TIMER_VECTOR, 0x320(%rbx)
    movl $10000, 0x380(%rbx)
2:
    cli
    cmpl $0, interrupts
    jne 3f
    sti
    hlt
    jmp 2b
3:
    movl $MSR_STAR, %ecx
    xorl %eax, %eax
    movl $(USER_SELECTORS << 16 | KERNEL_CODE), %edx
    wrmsr
    movl $MSR_LSTAR, %ecx
    movl $system_call, %eax
    xorl %edx, %edx
    wrmsr
    movl $MSR_SFMASK, %ecx
    movl $0x200, %eax
    wrmsr
    movl $user, %ecx
    movl $2, %r11d
    movl $USER_STACK, %esp
    sysretq

user:
    vectors
    movl $123, MISSING
    cmpl $123, MISSING
    jne fail
    syscall

system_call:
    movb $RAN, %al
    outb %al, $PORT
4:
    hlt
    jmp 4b

fail:
    movb $FAILED, %al
    outb %al, $PORT
5:
    hlt
    jmp 5b

page_fault:
    movq %cr2, %rax
    cmpq $MISSING, %rax
    jne fail
    movl $(MISSING + 0x87), LOWEST + (MISSING >> 21) * 8
    addq $8, %rsp
    iretq

timer:
    movl $APIC, %edx
    movl $0, 0xb0(%rdx)
    incl interrupts
    iretq

    .balign 16
interrupts:
    .long 0
segments_pointer:
    .word segments_end - segments - 1
    .long segments
gates_pointer:
    .word gates_end - gates - 1
    .quad gates

    .balign 16
segments:
    .quad 0
    .quad 0x00cf9b000000ffff // code of 32 bits
    .quad 0x00af9b000000ffff // code of 64 bits
    .quad 0x00cf93000000ffff // data
    .quad 0x00cffb000000ffff // a user's code of 32 bits
    .quad 0x00cff3000000ffff // a user's data
    .quad 0x00affb000000ffff // a user's code of 64 bits
    .word task_end - task - 1, task - _start
    .byte BASE >> 16, 0x89, 0, 0
    .quad 0
segments_end:

.macro gate of
    .word \of - _start, KERNEL_CODE, 0x8e00, BASE >> 16
    .quad 0
.endm
    .balign 16
gates:
    .skip PAGE_FAULT * 16
    gate page_fault
    .skip (TIMER_VECTOR - PAGE_FAULT - 1) * 16
    gate timer
gates_end:

    .balign 16
task:
    .long 0
    .quad KERNEL_STACK
    .skip 92
task_end:

    // Where a processor begins.
    .org IMAGE_BYTES - 16
    .code16
    jmp _start
    .org IMAGE_BYTES
