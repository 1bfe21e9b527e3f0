#include "source.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In a template '$n' stands for the unit's number, '$p' for that of an earlier unit, '$c' for a
 * constant. Each defines unit_$n, so that any of them can call any other. */
static const char *const templates[] = {
    /* a linked list, kept sorted, from the words of a text */
    "struct word_$n {\n"
    "    struct word_$n *next;\n"
    "    uint32_t hash;\n"
    "    unsigned length;\n"
    "    char text[$c];\n"
    "};\n"
    "\n"
    "static struct word_$n *insert_$n(struct word_$n *head, const char *text, size_t length)\n"
    "{\n"
    "    struct word_$n *word = calloc(1, sizeof *word);\n"
    "    struct word_$n **place = &head;\n"
    "\n"
    "    if (word == NULL)\n"
    "        return head;\n"
    "    if (length >= sizeof word->text)\n"
    "        length = sizeof word->text - 1;\n"
    "    memcpy(word->text, text, length);\n"
    "    word->length = (unsigned)length;\n"
    "    for (size_t i = 0; i < length; i++)\n"
    "        word->hash = word->hash * $cu + (unsigned char)text[i];\n"
    "    while (*place != NULL && strcmp((*place)->text, word->text) < 0)\n"
    "        place = &(*place)->next;\n"
    "    word->next = *place;\n"
    "    *place = word;\n"
    "    return head;\n"
    "}\n"
    "\n"
    "uint32_t unit_$n(const char *text, size_t length)\n"
    "{\n"
    "    struct word_$n *head = NULL;\n"
    "    uint32_t sum = 0;\n"
    "    size_t begin = 0;\n"
    "\n"
    "    for (size_t i = 0; i <= length; i++) {\n"
    "        if (i < length && !isspace((unsigned char)text[i]))\n"
    "            continue;\n"
    "        if (i > begin)\n"
    "            head = insert_$n(head, text + begin, i - begin);\n"
    "        begin = i + 1;\n"
    "    }\n"
    "    while (head != NULL) {\n"
    "        struct word_$n *next = head->next;\n"
    "\n"
    "        sum = (sum << 5 | sum >> 27) ^ head->hash ^ head->length;\n"
    "        free(head);\n"
    "        head = next;\n"
    "    }\n"
    "    return sum + unit_$p(text, length / 2);\n"
    "}\n",

    /* a state machine that takes a text apart */
    "enum token_$n { END_$n, NAME_$n, NUMBER_$n, STRING_$n, SIGN_$n };\n"
    "\n"
    "struct lexer_$n {\n"
    "    const char *at, *end;\n"
    "    uint64_t number;\n"
    "    unsigned counts[5];\n"
    "};\n"
    "\n"
    "static enum token_$n next_$n(struct lexer_$n *lexer)\n"
    "{\n"
    "    while (lexer->at < lexer->end && isspace((unsigned char)*lexer->at))\n"
    "        lexer->at++;\n"
    "    if (lexer->at >= lexer->end)\n"
    "        return END_$n;\n"
    "    switch (*lexer->at) {\n"
    "    case '0': case '1': case '2': case '3': case '4':\n"
    "    case '5': case '6': case '7': case '8': case '9':\n"
    "        lexer->number = $c;\n"
    "        while (lexer->at < lexer->end && isdigit((unsigned char)*lexer->at))\n"
    "            lexer->number = lexer->number * 10 + (uint64_t)(*lexer->at++ - '0');\n"
    "        return NUMBER_$n;\n"
    "    case '\"':\n"
    "        while (++lexer->at < lexer->end && *lexer->at != '\"')\n"
    "            if (*lexer->at == '\\\\')\n"
    "                lexer->at++;\n"
    "        lexer->at++;\n"
    "        return STRING_$n;\n"
    "    case '+': case '-': case '*': case '/': case '=': case '<': case '>':\n"
    "        lexer->at++;\n"
    "        return SIGN_$n;\n"
    "    default:\n"
    "        lexer->at++;\n"
    "        while (lexer->at < lexer->end && isalnum((unsigned char)*lexer->at))\n"
    "            lexer->at++;\n"
    "        return NAME_$n;\n"
    "    }\n"
    "}\n"
    "\n"
    "uint32_t unit_$n(const char *text, size_t length)\n"
    "{\n"
    "    struct lexer_$n lexer = {.at = text, .end = text + length};\n"
    "    enum token_$n token;\n"
    "\n"
    "    while ((token = next_$n(&lexer)) != END_$n)\n"
    "        lexer.counts[token] += token == NUMBER_$n ? (unsigned)lexer.number : $cu;\n"
    "    if (lexer.counts[STRING_$n] > $c)\n"
    "        return unit_$p(text, length / 3);\n"
    "    return lexer.counts[NAME_$n] ^ lexer.counts[NUMBER_$n] << 8 ^ lexer.counts[SIGN_$n] << "
    "16;\n"
    "}\n",

    /* a hash table with open addressing */
    "struct table_$n {\n"
    "    struct { uint32_t key; int32_t value; unsigned char used; } slots[128];\n"
    "    unsigned count;\n"
    "};\n"
    "\n"
    "static int32_t *find_$n(struct table_$n *table, uint32_t key)\n"
    "{\n"
    "    uint32_t slot = (key * 2654435761u + $cu) % 128;\n"
    "\n"
    "    for (unsigned tries = 0; tries < 128; tries++, slot = (slot + 1) % 128) {\n"
    "        if (!table->slots[slot].used) {\n"
    "            if (table->count >= 96)\n"
    "                return NULL;\n"
    "            table->slots[slot].used = 1;\n"
    "            table->slots[slot].key = key;\n"
    "            table->count++;\n"
    "            return &table->slots[slot].value;\n"
    "        }\n"
    "        if (table->slots[slot].key == key)\n"
    "            return &table->slots[slot].value;\n"
    "    }\n"
    "    return NULL;\n"
    "}\n"
    "\n"
    "uint32_t unit_$n(const char *text, size_t length)\n"
    "{\n"
    "    static struct table_$n table;\n"
    "    uint32_t key = $cu, sum = 0;\n"
    "\n"
    "    memset(&table, 0, sizeof table);\n"
    "    for (size_t i = 0; i + 1 < length; i += 2) {\n"
    "        int32_t *value = find_$n(&table, key ^ (uint32_t)(text[i] << 8 | text[i + 1]));\n"
    "\n"
    "        if (value == NULL)\n"
    "            break;\n"
    "        *value += (int32_t)i - $c;\n"
    "        key = key * $cu + 1;\n"
    "    }\n"
    "    for (unsigned i = 0; i < 128; i++)\n"
    "        if (table.slots[i].used)\n"
    "            sum += (uint32_t)table.slots[i].value ^ table.slots[i].key;\n"
    "    return length > $c ? sum ^ unit_$p(text + 1, length - 1 - length / 4) : sum;\n"
    "}\n",

    /* floating point over matrices */
    "struct matrix_$n {\n"
    "    double at[8][8];\n"
    "};\n"
    "\n"
    "static void multiply_$n(struct matrix_$n *out, const struct matrix_$n *a,\n"
    "                        const struct matrix_$n *b)\n"
    "{\n"
    "    for (int row = 0; row < 8; row++)\n"
    "        for (int column = 0; column < 8; column++) {\n"
    "            double sum = 0;\n"
    "\n"
    "            for (int i = 0; i < 8; i++)\n"
    "                sum += a->at[row][i] * b->at[i][column];\n"
    "            out->at[row][column] = sum > 1e6 ? sum / 1e6 : sum;\n"
    "        }\n"
    "}\n"
    "\n"
    "static double trace_$n(const struct matrix_$n *matrix)\n"
    "{\n"
    "    double sum = 0;\n"
    "\n"
    "    for (int i = 0; i < 8; i++)\n"
    "        sum += matrix->at[i][i];\n"
    "    return sum < 0 ? -sum : sum;\n"
    "}\n"
    "\n"
    "uint32_t unit_$n(const char *text, size_t length)\n"
    "{\n"
    "    struct matrix_$n base, power, next;\n"
    "\n"
    "    for (size_t i = 0; i < 64; i++)\n"
    "        base.at[i / 8][i % 8] = length == 0 ? $c : text[i % length] / ($c + 1.0);\n"
    "    power = base;\n"
    "    for (int i = 0; i < $c; i++) {\n"
    "        multiply_$n(&next, &power, &base);\n"
    "        power = next;\n"
    "    }\n"
    "    if (trace_$n(&power) > $c.5)\n"
    "        return (uint32_t)(trace_$n(&power) * 16) & 0xffffff;\n"
    "    return unit_$p(text, length / 2) + (uint32_t)trace_$n(&base);\n"
    "}\n",

    /* a ring of records, sorted through a function pointer, printed into a buffer */
    "struct record_$n {\n"
    "    char name[24];\n"
    "    int64_t amount;\n"
    "    unsigned short kind;\n"
    "};\n"
    "\n"
    "static int compare_$n(const void *a, const void *b)\n"
    "{\n"
    "    const struct record_$n *left = a, *right = b;\n"
    "\n"
    "    if (left->kind != right->kind)\n"
    "        return left->kind < right->kind ? -1 : 1;\n"
    "    if (left->amount != right->amount)\n"
    "        return left->amount < right->amount ? -1 : 1;\n"
    "    return strcmp(left->name, right->name);\n"
    "}\n"
    "\n"
    "static int64_t price_$n(const struct record_$n *record)\n"
    "{\n"
    "    switch (record->kind) {\n"
    "    case 0: return record->amount * $c;\n"
    "    case 1: return record->amount / $c - $c;\n"
    "    case 2: return record->amount << 3 | $c;\n"
    "    case 3: return -record->amount;\n"
    "    case 4: return record->amount % ($c + 2);\n"
    "    case 5: return record->name[0] == 'x' ? 0 : $c;\n"
    "    default: return record->amount + (int64_t)strlen(record->name);\n"
    "    }\n"
    "}\n"
    "\n"
    "uint32_t unit_$n(const char *text, size_t length)\n"
    "{\n"
    "    struct record_$n records[16] = {{\"\", 0, 0}};\n"
    "    int64_t total = 0;\n"
    "    char line[96];\n"
    "\n"
    "    for (size_t i = 0; i < length; i++) {\n"
    "        struct record_$n *record = &records[i % 16];\n"
    "\n"
    "        record->amount += text[i] * $c;\n"
    "        record->kind = (unsigned short)(text[i] & 7);\n"
    "        snprintf(record->name, sizeof record->name, \"%c-%zu\", text[i], i);\n"
    "    }\n"
    "    qsort(records, 16, sizeof records[0], compare_$n);\n"
    "    for (size_t i = 0; i < 16; i++) {\n"
    "        total += price_$n(&records[i]);\n"
    "        if (total < 0)\n"
    "            total = $c - total;\n"
    "    }\n"
    "    snprintf(line, sizeof line, \"%s %lld $c\", records[15].name, (long long)total);\n"
    "    return unit_$p(line, strlen(line) / 2) ^ (uint32_t)total;\n"
    "}\n",

    /* bits, and a table made at run time */
    "static uint32_t checksums_$n[256];\n"
    "\n"
    "static void prepare_$n(void)\n"
    "{\n"
    "    for (uint32_t i = 0; i < 256; i++) {\n"
    "        uint32_t value = i;\n"
    "\n"
    "        for (int bit = 0; bit < 8; bit++)\n"
    "            value = value & 1 ? value >> 1 ^ (0xedb88300u + $cu) : value >> 1;\n"
    "        checksums_$n[i] = value;\n"
    "    }\n"
    "}\n"
    "\n"
    "static size_t unescape_$n(char *out, size_t room, const char *text, size_t length)\n"
    "{\n"
    "    size_t used = 0;\n"
    "\n"
    "    for (size_t i = 0; i < length && used + 1 < room; i++) {\n"
    "        if (text[i] == '%' && i + 2 < length && isxdigit((unsigned char)text[i + 1]) &&\n"
    "            isxdigit((unsigned char)text[i + 2])) {\n"
    "            char digits[3] = {text[i + 1], text[i + 2], '\\0'};\n"
    "\n"
    "            out[used++] = (char)strtoul(digits, NULL, 16);\n"
    "            i += 2;\n"
    "        } else {\n"
    "            out[used++] = text[i] == '+' ? ' ' : text[i];\n"
    "        }\n"
    "    }\n"
    "    out[used] = '\\0';\n"
    "    return used;\n"
    "}\n"
    "\n"
    "uint32_t unit_$n(const char *text, size_t length)\n"
    "{\n"
    "    char plain[256 + $c];\n"
    "    size_t used = unescape_$n(plain, sizeof plain, text, length);\n"
    "    uint32_t sum = ~0u;\n"
    "\n"
    "    if (checksums_$n[1] == 0)\n"
    "        prepare_$n();\n"
    "    for (size_t i = 0; i < used; i++)\n"
    "        sum = checksums_$n[(sum ^ (unsigned char)plain[i]) & 255] ^ sum >> 8;\n"
    "    return used > $c ? ~sum ^ unit_$p(plain, used / 2) : ~sum;\n"
    "}\n",
};

#define TEMPLATES (sizeof templates / sizeof templates[0])

static const char head[] = "#include <ctype.h>\n"
                           "#include <stdint.h>\n"
                           "#include <stdio.h>\n"
                           "#include <stdlib.h>\n"
                           "#include <string.h>\n"
                           "\n"
                           "uint32_t unit_0(const char *text, size_t length)\n"
                           "{\n"
                           "    return length == 0 ? 0 : (unsigned char)text[0];\n"
                           "}\n";

/* What fills the lines that no further unit fits in. */
static const char tail_begin[] = "\nconst int32_t rest[] = {\n";
static const char tail_end[] = "};\n";

const char source_hello_c[] = "#include <stdio.h>\n"
                              "\n"
                              "int main(void)\n"
                              "{\n"
                              "    puts(\"hello, world\");\n"
                              "    return 0;\n"
                              "}\n";

const char source_words_cc[] =
    "#include <map>\n"
    "#include <string>\n"
    "#include <vector>\n"
    "\n"
    "std::vector<std::string> split(const std::string &text, char separator)\n"
    "{\n"
    "    std::vector<std::string> parts(1);\n"
    "    for (char c : text) {\n"
    "        if (c == separator)\n"
    "            parts.emplace_back();\n"
    "        else\n"
    "            parts.back() += c;\n"
    "    }\n"
    "    return parts;\n"
    "}\n"
    "\n"
    "std::map<std::string, std::vector<int>> index_words(const std::vector<std::string> &lines)\n"
    "{\n"
    "    std::map<std::string, std::vector<int>> places;\n"
    "    int number = 0;\n"
    "    for (const std::string &line : lines) {\n"
    "        number++;\n"
    "        for (const std::string &word : split(line, ' '))\n"
    "            if (!word.empty())\n"
    "                places[word].push_back(number);\n"
    "    }\n"
    "    return places;\n"
    "}\n"
    "\n"
    "int main(int argc, char **argv)\n"
    "{\n"
    "    std::vector<std::string> lines(argv + 1, argv + argc);\n"
    "    auto places = index_words(lines);\n"
    "    auto found = places.find(\"needle\");\n"
    "    return found == places.end() ? 1 : static_cast<int>(found->second.size());\n"
    "}\n";

static void write_unit(FILE *out, const char *text, unsigned number, uint32_t *random);
static uint32_t next_random(uint32_t *random);
static unsigned count_lines(const char *text);

char *source_generate(unsigned lines)
{
    unsigned tail_lines = count_lines(tail_begin) + count_lines(tail_end);
    unsigned used = count_lines(head);
    uint32_t random = 1;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    bool failed;

    assert(lines >= SOURCE_LINES_MIN && lines <= SOURCE_LINES_MAX);
    if (out == NULL)
        return NULL;
    fputs(head, out);
    for (unsigned number = 1;; number++) {
        const char *unit = templates[number % TEMPLATES];

        if (used + 1 + count_lines(unit) + tail_lines > lines)
            break;
        fputc('\n', out);
        write_unit(out, unit, number, &random);
        used += 1 + count_lines(unit);
    }
    fputs(tail_begin, out);
    for (used += tail_lines; used < lines; used++)
        fprintf(out, "    %u,\n", (unsigned)next_random(&random));
    fputs(tail_end, out);
    failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}

static void write_unit(FILE *out, const char *text, unsigned number, uint32_t *random)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (*at != '$') {
            fputc(*at, out);
            continue;
        }
        switch (*++at) {
        case 'n':
            fprintf(out, "%u", number);
            break;
        case 'p':
            fprintf(out, "%u", (unsigned)next_random(random) % number);
            break;
        default:
            assert(*at == 'c');
            fprintf(out, "%u", 16 + (unsigned)next_random(random) % 80);
        }
    }
}

static uint32_t next_random(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return *random >> 8;
}

static unsigned count_lines(const char *text)
{
    unsigned count = 0;

    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}
