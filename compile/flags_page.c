/* flags_page - prints docs/flags.md, made of the flags' table. For ./dev docs; not installed. */
#include <stdio.h>
#include <stdlib.h>

#include <millwright/flags.h>

static void kinds_print(void);
static void section_print(size_t index);
static void row_print(const struct mw_flag_entry *entry);
static void cell_print(const char *text, bool as_code);

static const char intro[] =
    "# Flags\n"
    "\n"
    "What `args` of a request, and flags behind `--` of `millwright compile`, may hold. This is "
    "an\n"
    "allow-list: a flag that is not here is refused, with its name and the reason.\n"
    "\n"
    "This page is made of `compile/flags_table.h` by `./dev docs`; a test compares them.\n"
    "\n"
    "- `[no-]` may be there or not.\n"
    "- Of several rows that match, the longest match counts.\n"
    "- Written *alone*: nothing follows. *Joined*: the value stands right behind it (`-DA=1`).\n"
    "  *Apart*: it is the next argument (`-D A=1`); it is joined before it enters the content "
    "key.\n"
    "  *Begins so*: whatever begins with it.\n"
    "- No flag may hold a control character.\n"
    "- The language is the field `language`, or an `-x`, or what the ending of the main file "
    "says.\n"
    "- How long a compile may take, and which runner it gets, is no flag and never in the key.\n";

static const struct {
    const char *title, *text, *head;
} sections[] = {
    [MW_FLAG_ALLOWED] = {"Allowed", "", "what for"},
    [MW_FLAG_DROPPED] = {"Taken and ignored", "", "why"},
    [MW_FLAG_REFUSED] = {"Refused by name",
                         "Everything else is refused as well; these say why.\n\n", "why"},
};

int main(void)
{
    fputs(intro, stdout);
    kinds_print();
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        section_print(i);
    return ferror(stdout) || fclose(stdout) != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static void kinds_print(void)
{
    struct mw_flag_kind kind;

    puts("\n## Kinds of value\n\n"
         "Other values are listed word by word, or `*`: anything.\n\n"
         "| kind | takes | else refused, because it |\n"
         "| --- | --- | --- |");
    for (size_t i = 0; mw_flag_kind_get(i, &kind); i++)
        printf("| `%s` | %s | %s |\n", kind.name, kind.takes, kind.reason);
}

static void section_print(size_t index)
{
    struct mw_flag_entry entry;

    printf("\n## %s\n\n%s| flag | written | value | in the key | %s |\n"
           "| --- | --- | --- | --- | --- |\n",
           sections[index].title, sections[index].text, sections[index].head);
    for (size_t i = 0; mw_flag_entry_get(i, &entry); i++) {
        if (entry.use == index)
            row_print(&entry);
    }
}

static void row_print(const struct mw_flag_entry *entry)
{
    const char *in_key = entry->in_key ? "yes" : "no";

    putchar('|');
    cell_print(entry->name, true);
    cell_print(entry->written, false);
    cell_print(entry->values, true);
    cell_print(entry->use == MW_FLAG_REFUSED ? "" : in_key, false);
    cell_print(entry->text, false);
    putchar('\n');
}

static void cell_print(const char *text, bool as_code)
{
    const char *quote = as_code ? "`" : "";

    if (text[0] == '\0')
        fputs(" |", stdout);
    else
        printf(" %s%s%s |", quote, text, quote);
}
