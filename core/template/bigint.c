// SPDX-License-Identifier: Apache-2.0
// Integers of any size, for the rare template or tool argument that has one. Sign and magnitude,
// nine decimal digits a limb, so that printing is trivial.
#include "core/template/value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LIMB = 1000000000,
    LIMB_DIGITS = 9,
    LIMBS_MAX = 2048, // about 18,000 digits: far more than any template needs, cheap to multiply
    SMALL_LIMBS = 3,  // an int64 has at most 19 digits
};

struct plm_tbig {
    bool negative;
    size_t n; // limbs, no leading zeros; 0 is zero
    uint32_t limb[];
};

// A view of any integer value.
struct view {
    bool negative;
    size_t n;
    const uint32_t *limb;
    uint32_t own[SMALL_LIMBS];
};

static void view_of(const struct plm_tval *v, struct view *ret)
{
    if (v->kind == PLM_T_BIG) {
        ret->negative = v->big->negative;
        ret->n = v->big->n;
        ret->limb = v->big->limb;
        return;
    }
    int64_t i = plm_tval_small(v);
    uint64_t m = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    ret->negative = i < 0;
    ret->n = 0;
    for (; m > 0; m /= LIMB)
        ret->own[ret->n++] = (uint32_t)(m % LIMB);
    ret->limb = ret->own;
}

static struct plm_tbig *new_big(struct plm_trun *r, size_t n)
{
    if (n > LIMBS_MAX) {
        plm_tpl_fail_limit(r, "size of an integer");
        return NULL;
    }
    struct plm_tbig *big = plm_tpl_alloc(r, sizeof(*big) + n * sizeof(uint32_t));
    if (big != NULL)
        big->n = n;
    return big;
}

// Drops leading zeros and gives an INT where the value fits.
static bool finish(struct plm_tbig *big, struct plm_tval *ret)
{
    while (big->n > 0 && big->limb[big->n - 1] == 0)
        big->n--;
    if (big->n <= SMALL_LIMBS) {
        unsigned __int128 m = 0;
        for (size_t i = big->n; i-- > 0;)
            m = m * LIMB + big->limb[i];
        if (m <= (unsigned __int128)INT64_MAX + big->negative) {
            uint64_t u = (uint64_t)m;
            *ret = plm_tval_int((int64_t)(big->negative ? 0 - u : u));
            return true;
        }
    }
    *ret = (struct plm_tval){.kind = PLM_T_BIG, .big = big};
    return true;
}

static int cmp_magnitude(const struct view *a, const struct view *b)
{
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    for (size_t i = a->n; i-- > 0;)
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

int plm_tbig_cmp(const struct plm_tval *a, const struct plm_tval *b)
{
    struct view x, y;
    view_of(a, &x);
    view_of(b, &y);
    if (x.negative != y.negative)
        return x.negative ? -1 : 1;
    int c = cmp_magnitude(&x, &y);
    return x.negative ? -c : c;
}

bool plm_tbig_add(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b,
                  bool subtract, struct plm_tval *ret)
{
    struct view x, y;
    view_of(a, &x);
    view_of(b, &y);
    if (subtract)
        y.negative = !y.negative;
    const struct view *large = cmp_magnitude(&x, &y) >= 0 ? &x : &y;
    const struct view *small = large == &x ? &y : &x;
    struct plm_tbig *big = new_big(r, large->n + 1);
    if (big == NULL || !plm_tpl_step(r, large->n / 16))
        return false;
    big->negative = large->negative;
    int64_t sign = x.negative == y.negative ? 1 : -1;
    int64_t carry = 0;
    for (size_t i = 0; i < big->n; i++) {
        int64_t s = carry + (i < large->n ? large->limb[i] : 0) +
                    sign * (int64_t)(i < small->n ? small->limb[i] : 0);
        carry = s < 0 ? -1 : s / LIMB;
        big->limb[i] = (uint32_t)(s - carry * LIMB);
    }
    return finish(big, ret);
}

bool plm_tbig_mul(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b,
                  struct plm_tval *ret)
{
    struct view x, y;
    view_of(a, &x);
    view_of(b, &y);
    struct plm_tbig *big = new_big(r, x.n + y.n);
    if (big == NULL || !plm_tpl_step(r, x.n * y.n / 16))
        return false;
    big->negative = x.negative != y.negative;
    for (size_t i = 0; i < x.n; i++) {
        uint64_t carry = 0;
        for (size_t j = 0; j < y.n || carry > 0; j++) {
            uint64_t s = big->limb[i + j] + carry + (j < y.n ? (uint64_t)x.limb[i] * y.limb[j] : 0);
            big->limb[i + j] = (uint32_t)(s % LIMB);
            carry = s / LIMB;
        }
    }
    return finish(big, ret);
}

// rest = rest * LIMB + limb, then the number of times y goes into it is taken out and returned.
static uint32_t divide_step(uint32_t *rest, size_t *n, uint32_t limb, const struct view *y)
{
    memmove(rest + 1, rest, *n * sizeof(*rest));
    rest[0] = limb;
    (*n)++;
    while (*n > 0 && rest[*n - 1] == 0)
        (*n)--;
    uint32_t lo = 0;
    uint32_t hi = LIMB - 1;
    while (lo < hi) { // the largest q with q * y <= rest
        uint32_t q = lo + (hi - lo + 1) / 2;
        uint64_t carry = 0;
        int c = 0; // order of q * y and rest, from the lowest limb up
        for (size_t i = 0; i < y->n || i < *n || carry > 0; i++) {
            uint64_t s = carry + (i < y->n ? (uint64_t)q * y->limb[i] : 0);
            uint32_t digit = (uint32_t)(s % LIMB);
            uint32_t have = i < *n ? rest[i] : 0;
            carry = s / LIMB;
            if (digit != have)
                c = digit < have ? -1 : 1;
        }
        if (c <= 0)
            lo = q;
        else
            hi = q - 1;
    }
    uint64_t carry = 0;
    for (size_t i = 0; i < *n; i++) {
        uint64_t s = carry + (i < y->n ? (uint64_t)lo * y->limb[i] : 0);
        uint32_t digit = (uint32_t)(s % LIMB);
        carry = s / LIMB;
        if (rest[i] < digit) {
            rest[i] += LIMB - digit;
            carry++;
        } else {
            rest[i] -= digit;
        }
    }
    while (*n > 0 && rest[*n - 1] == 0)
        (*n)--;
    return lo;
}

bool plm_tbig_divmod(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b,
                     struct plm_tval *ret_div, struct plm_tval *ret_mod)
{
    struct view x, y;
    view_of(a, &x);
    view_of(b, &y);
    if (y.n == 0)
        return plm_tpl_fail(r, "division by zero");
    struct plm_tbig *quot = new_big(r, x.n);
    struct plm_tbig *rest = new_big(r, x.n + 2);
    if (quot == NULL || rest == NULL || !plm_tpl_step(r, x.n * y.n * 2))
        return false;
    size_t n = 0;
    for (size_t i = x.n; i-- > 0;)
        quot->limb[i] = divide_step(rest->limb, &n, x.limb[i], &y);
    quot->negative = x.negative != y.negative;
    rest->negative = x.negative;
    struct plm_tval q, m;
    if (!finish(quot, &q) || !finish(rest, &m))
        return false;
    if (n > 0 && x.negative != y.negative) { // floor, not truncation
        struct plm_tval one = plm_tval_int(1);
        if (!plm_tbig_add(r, &q, &one, true, &q) || !plm_tbig_add(r, &m, b, false, &m))
            return false;
    }
    if (ret_div != NULL)
        *ret_div = q;
    if (ret_mod != NULL)
        *ret_mod = m;
    return true;
}

bool plm_tbig_parse(struct plm_trun *r, const char *digits, size_t n, unsigned base, bool negative,
                    struct plm_tval *ret)
{
    // log10(36) < 1.56: enough limbs for any base.
    struct plm_tbig *big = new_big(r, (n * 2) / LIMB_DIGITS + 2);
    if (big == NULL || !plm_tpl_step(r, n / 16 * (n / 16)))
        return false;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char c = digits[i];
        uint64_t carry = (uint64_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        for (size_t k = 0; k < used || carry > 0; k++) {
            uint64_t s = (uint64_t)big->limb[k] * base + carry;
            big->limb[k] = (uint32_t)(s % LIMB);
            carry = s / LIMB;
            if (k == used)
                used++;
        }
    }
    big->negative = negative;
    return finish(big, ret);
}

bool plm_tbig_from_u64(struct plm_trun *r, uint64_t u, struct plm_tval *ret)
{
    struct plm_tbig *big = new_big(r, SMALL_LIMBS);
    if (big == NULL)
        return false;
    for (size_t i = 0; i < SMALL_LIMBS; i++, u /= LIMB)
        big->limb[i] = (uint32_t)(u % LIMB);
    return finish(big, ret);
}

bool plm_tbig_from_double(struct plm_trun *r, double d, struct plm_tval *ret)
{
    if (!isfinite(d))
        return plm_tpl_fail(r, "infinity and NaN are no integers");
    char text[400];
    // Exact: printf writes every digit of an integral double.
    plm_tnum_printf(text, sizeof(text), 'f', false, 0, trunc(fabs(d)));
    return plm_tbig_parse(r, text, strlen(text), 10, d < 0, ret);
}

double plm_tbig_double(const struct plm_tval *v)
{
    struct view x;
    view_of(v, &x);
    // Rounded once: the leading 36 digits are more than the 17 that a double tells apart.
    char text[64] = "";
    size_t top = x.n < 4 ? x.n : 4;
    size_t len = 0;
    for (size_t i = 0; i < top; i++)
        len +=
            (size_t)snprintf(text + len, sizeof(text) - len, "%09u", (unsigned)x.limb[x.n - 1 - i]);
    snprintf(text + len, sizeof(text) - len, "e%zu", (x.n - top) * LIMB_DIGITS);
    double d = 0.0;
    plm_tnum_parse_double(text, strlen(text), &d);
    return x.negative ? -d : d;
}

uint64_t plm_tbig_hash(const struct plm_tval *v)
{
    struct plm_slice s = {(const char *)v->big->limb, v->big->n * sizeof(uint32_t)};
    return plm_tstr_hash(s) + v->big->negative;
}

bool plm_tbig_negative(const struct plm_tval *v)
{
    return v->kind == PLM_T_BIG ? v->big->negative : plm_tval_small(v) < 0;
}

bool plm_tbig_print(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v, bool user)
{
    const struct plm_tbig *big = v->big;
    char text[16];
    if (big->negative && !plm_tbuf_addz(r, buf, "-", user))
        return false;
    for (size_t i = big->n; i-- > 0;) {
        snprintf(text, sizeof(text), i == big->n - 1 ? "%u" : "%09u", (unsigned)big->limb[i]);
        if (!plm_tbuf_addz(r, buf, text, user))
            return false;
    }
    return true;
}
