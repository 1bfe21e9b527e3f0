#include <millwright/digest.h>

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

static int digest_text(char *text, const EVP_MD *kind, const void *data, size_t bytes);

int mw_sha256_text(char text[MW_SHA256_TEXT_BYTES], const void *data, size_t bytes)
{
    return digest_text(text, EVP_sha256(), data, bytes);
}

int mw_md5_text(char text[MW_MD5_TEXT_BYTES], const void *data, size_t bytes)
{
    return digest_text(text, EVP_md5(), data, bytes);
}

void mw_hex_text(char *text, const uint8_t *sum, size_t count)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < count; i++) {
        text[2 * i] = digits[sum[i] >> 4];
        text[2 * i + 1] = digits[sum[i] & 15];
    }
    text[2 * count] = '\0';
}

bool mw_hex_valid(const char *text, size_t length)
{
    return strlen(text) == length && strspn(text, "0123456789abcdef") == length;
}

static int digest_text(char *text, const EVP_MD *kind, const void *data, size_t bytes)
{
    uint8_t sum[EVP_MAX_MD_SIZE];
    unsigned count = 0;

    if (EVP_Digest(bytes ? data : "", bytes, sum, &count, kind, NULL) != 1)
        return -ENOMEM; /* the only way in which a digest in memory fails */
    mw_hex_text(text, sum, count);
    return 0;
}
