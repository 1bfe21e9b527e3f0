#include <millwright/limits.h>

const char *mw_limit_name(enum mw_limit limit)
{
    static const char *const names[MW_LIMITS] = {
        [MW_LIMIT_NONE] = "none",     [MW_LIMIT_WALL] = "wall",     [MW_LIMIT_CPU] = "cpu",
        [MW_LIMIT_MEMORY] = "memory", [MW_LIMIT_OUTPUT] = "output",
    };

    return (unsigned)limit < MW_LIMITS ? names[limit] : "unknown";
}
