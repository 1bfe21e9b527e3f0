#include "json_text.h"

char *mw_json_text(json_t *value, enum mw_json_form form)
{
    static const size_t flags[] = {
        [MW_JSON_COMPACT] = JSON_COMPACT | JSON_REAL_PRECISION(9),
        [MW_JSON_INDENTED] = JSON_INDENT(2) | JSON_REAL_PRECISION(9),
    };
    char *text = value ? json_dumps(value, flags[form]) : NULL;

    json_decref(value);
    return text;
}
