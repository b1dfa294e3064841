// Two jumps through a table, the first with an index below 256, the second with any.
// Both lead to index + 1 for indexes below 8.
__asm__(
    ".section .rodata\n"
    ".p2align 2\n"
    "ways: .long w0-ways, w1-ways, w2-ways, w3-ways, w4-ways, w5-ways, w6-ways, w7-ways\n"
    ".text\n"
    ".globl lead, lead_masked, load_at, load_masked_at, recovered\n"
    ".globl copy_at, add_masked_at, jump_masked_at, ways\n"
    ".type lead, @function\n"
    "lead:\n"
    "  test %rsp, %rsp\n"
    "  jz lead_masked\n"
    "  lea ways(%rip), %rcx\n"
    "  test %rdi, %rdi\n"
    "  cmovne %rdi, %rcx\n"
    "  movzbl %sil, %edx\n"
    "  mov $0x1111, %eax\n"
    "load_at: movslq (%rcx, %rdx, 4), %rax\n"
    "  add %rcx, %rax\n"
    "  jmp *%rax\n"
    "lead_masked:\n"
    "  lea ways(%rip), %rcx\n"
    "  test %rdi, %rdi\n"
    "  cmovne %rdi, %rcx\n"
    "  mov $0x2222, %eax\n"
    "copy_at: mov %esi, %eax\n"
    "load_masked_at: movslq (%rcx, %rax, 4), %rax\n"
    "add_masked_at: add %rcx, %rax\n"
    "jump_masked_at: jmp *%rax\n"
    "w0: mov $1, %eax\n ret\n"
    "w1: mov $2, %eax\n ret\n"
    "w2: mov $3, %eax\n ret\n"
    "w3: mov $4, %eax\n ret\n"
    "w4: mov $5, %eax\n ret\n"
    "w5: mov $6, %eax\n ret\n"
    "w6: mov $7, %eax\n ret\n"
    "w7: mov $8, %eax\n ret\n"
    "recovered: mov $100, %eax\n ret\n"
    ".size lead, . - lead\n");

int lead(const void* table, unsigned index);
int lead_masked(const void* table, unsigned index);
extern char load_at[], copy_at[], load_masked_at[], add_masked_at[], jump_masked_at[], recovered[];
extern const int ways[];
