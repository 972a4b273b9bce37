"""SQL functions that data engineers use, by whether a replay gives the same results; `SCHEMA` has each type."""

SCHEMA = (
    "s STRING, n INT, d DOUBLE, b BINARY, a ARRAY<STRING>, b2 ARRAY<INT>, m MAP<STRING, INT>, st STRUCT<x: INT>, "
    "t TIMESTAMP, dt DATE, a2 ARRAY<STRUCT<x: INT>>, bl BOOLEAN"
)

_TEXT = """
upper(s); lower(s); trim(s); ltrim(s); rtrim(s); btrim(s); initcap(s); length(s); substring(s, 1, 2); left(s, 2);
right(s, 2);
concat(s, s); s || s; concat_ws('-', s, s); lpad(s, 5, 'x'); rpad(s, 5, 'x'); repeat(s, 2); reverse(s);
replace(s, 'a', 'b');
translate(s, 'a', 'b'); split(s, ' '); split_part(s, ' ', 1); regexp_replace(s, 'a', 'b');
regexp_extract(s, '(a)', 1);
regexp_extract_all(s, '(a)', 1); regexp_count(s, 'a'); regexp_substr(s, 'a'); s like 'a%'; s ilike 'a%'; s rlike 'a';
instr(s, 'a'); locate('a', s); contains(s, 'a'); startswith(s, 'a'); endswith(s, 'a'); ascii(s); base64(b);
unbase64(s);
hex(n); unhex(s); encode(s, 'utf-8'); decode(b, 'utf-8'); md5(s); sha1(s); sha2(s, 256); crc32(s); hash(s);
xxhash64(s);
soundex(s); levenshtein(s, s); format_string('%s', s); format_number(d, 2); overlay(s, 'x', 1); space(n); chr(n);
bit_length(s); octet_length(s); url_encode(s); url_decode(s); parse_url(s, 'HOST'); substring_index(s, '.', 1);
find_in_set(s, 'a,b'); mask(s); to_number(s, '999'); to_char(n, '999'); elt(1, s, s); to_binary(s)
"""
_NUMBERS = """
abs(n); ceil(d); floor(d); round(d, 1); bround(d, 1); sqrt(d); cbrt(d); power(d, 2); exp(d); ln(d); log(2, d);
log10(d);
log1p(d); sin(d); cos(d); tan(d); atan2(d, d); tanh(d); degrees(d); radians(d); sign(d); rint(d); hypot(d, d);
factorial(n);
n % 2; pmod(n, 2); n div 2; n + 1; n - 1; n * 2; n / 2; -n; bin(n); conv(s, 10, 16); greatest(n, 1); least(n, 1);
width_bucket(d, 0, 1, 5); pi(); try_add(n, n); try_divide(n, n); shiftleft(n, 1); n & 1; n | 1; n ^ 1; ~n;
bit_count(n);
isnan(d); nanvl(d, d)
"""
_LOGIC = """
coalesce(s, s); ifnull(s, s); nvl(s, s); nvl2(s, s, s); nullif(s, 'a'); if(n > 1, s, s); isnull(s); isnotnull(s);
s is null;
n between 1 and 2; n in (1, 2); s = 'a'; s <=> 'a'; s <> 'a'; not bl; n > 1 and n < 3; n > 1 or n < 3;
case when n > 1 then s else 'x' end; cast(n as string); cast(s as int); try_cast(s as int); n :: string; typeof(n);
cast(d as decimal(10, 2)); cast(s as timestamp); cast(n as decimal(10, 2)) * 2; cast(n as decimal(10, 2)) / 3
"""
_COLLECTIONS = """
array(s, s); array_contains(a, 'x'); array_distinct(a); array_union(a, a); array_intersect(a, a); array_except(a, a);
array_join(a, ','); array_max(a); array_min(a); array_position(a, 'x'); array_remove(a, 'x'); array_repeat(s, 2);
array_sort(a); sort_array(a); array_append(a, 'x'); array_insert(a, 1, 'x'); array_compact(a); size(a);
slice(a, 1, 2);
flatten(array(a, a)); element_at(a, 1); try_element_at(a, 1); get(a, 0); a[0]; arrays_overlap(a, a); arrays_zip(a, a);
sequence(1, n); transform(a, x -> upper(x)); filter(a, x -> x > 'a'); exists(a, x -> x > 'a');
forall(a, x -> x > 'a');
aggregate(a, 0, (acc, x) -> acc + length(x)); zip_with(a, a, (x, y) -> concat(x, y)); map('a', n); map_keys(m);
map_values(m); map_entries(m); map_from_arrays(a, a); map_concat(m, m); map_filter(m, (k, v) -> v > 1); m['a'];
transform_values(m, (k, v) -> v + 1); map_contains_key(m, 'a'); str_to_map(s); struct(s, n); named_struct('a', s);
st.x;
to_json(st); from_json(s, 'a INT'); get_json_object(s, '$.a'); json_array_length(s); json_object_keys(s); to_csv(st);
from_csv(s, 'a INT'); parse_json(s)
"""
_TIME = """
year(t); quarter(t); month(t); day(t); dayofweek(t); dayofyear(t); weekofyear(t); hour(t); minute(t); second(t);
date_add(dt, 1); date_sub(dt, 1); datediff(dt, dt); add_months(dt, 1); months_between(dt, dt); last_day(dt);
next_day(dt, 'MON'); trunc(dt, 'MM'); date_trunc('hour', t); date_format(t, 'yyyy'); to_date(s); to_date(s, 'yyyy');
to_timestamp(s); to_timestamp(s, 'yyyy'); try_to_timestamp(s); unix_timestamp(t); unix_timestamp(s, 'yyyy');
from_unixtime(n); timestamp_seconds(n); timestamp_millis(n); unix_date(dt); unix_millis(t); make_date(2020, 1, 1);
make_timestamp(2020, 1, 1, 1, 1, 1); from_utc_timestamp(t, 'UTC'); to_utc_timestamp(t, 'UTC'); extract(YEAR FROM t);
date_part('YEAR', t); monthname(dt); dayname(dt); t + interval 1 day; dt + interval 1 day; t - t; dt - dt;
t + interval 1 month; dt + interval 1 month; timestampadd(HOUR, 1, t); timestampdiff(HOUR, t, t);
window(t, '1 minute'); t - interval 1 month; interval 1 day * n; make_dt_interval(n) / 2; extract(SECOND FROM t);
try_make_interval(n); try_make_timestamp(2020, 1, 1, 1, 1, 1); to_timestamp_ntz(s);
time_bucket(INTERVAL '1' HOUR, t); to_date('2020-01-01'); to_timestamp('epoch'); try_to_timestamp('now', 'yyyy');
to_date(concat(s, 'today'))
"""
_FORMATS = """
aes_decrypt(b, '0000111122223333'); try_aes_decrypt(b, '0000111122223333'); hmac('k', s, 'SHA-256'); to_base32(b);
from_base32(s); jaro_winkler_similarity(s, s); to_xml(st); schema_of_csv('1,a'); schema_of_json('{}');
schema_of_xml('<a/>'); schema_of_variant(parse_json(s)); xpath(s, 'a'); xpath_string(s, 'a'); xpath_double(s, 'a');
try_url_decode(s); try_parse_url(s, 'HOST'); validate_utf8(s); try_validate_utf8(s); is_valid_variant(parse_json(s));
variant_get(parse_json(s), '$.a', 'int'); try_variant_get(parse_json(s), '$.a', 'int'); collate(s, 'UNICODE');
bitmap_count(b); bitmap_bit_position(n); bitmap_bucket_number(n); hll_sketch_estimate(b); hll_union(b, b);
theta_sketch_estimate(b); assert_true(n > 1); if(n > 1, s, raise_error('x')); lpad(b, 5, b); contains(b, b);
s like any ('a', 'b'); s not like any ('a', 'b'); s not like all ('a', 'b'); ceil(d::decimal(10, 3), 1);
floor(d::decimal(10, 3), 1); vector_inner_product(array(1f), array(1f))
"""
DETERMINISTIC = [text.strip() for text in ";".join((_TEXT, _NUMBERS, _LOGIC, _COLLECTIONS, _TIME, _FORMATS)).split(";")]

#: Each gives the same on a replay while the order of a key's records is fixed.
AGGREGATES = [
    "count(*)", "count(s)", "sum(n)", "sum(d)", "avg(d)", "min(n)", "max(n)", "min_by(s, n)", "max_by(s, n)",
    "first(s)",
    "last(s)", "any_value(s)", "count_if(n > 1)", "bool_and(bl)", "bool_or(bl)", "every(bl)", "bit_and(n)",
    "bit_xor(n)",
    "stddev(d)", "var_pop(d)", "skewness(d)", "kurtosis(d)", "corr(d, d)", "covar_pop(d, d)",
    "approx_count_distinct(s)",
    "try_sum(n)", "try_avg(n)", "sum(case when n > 1 then 1 else 0 end)", "max(struct(n, s))", "max(upper(s))",
    "regr_count(d, d)", "regr_avgx(d, d)", "regr_sxx(d, d)", "bitmap_construct_agg(n)", "bitmap_or_agg(b)",
    "max(collate(s, 'UTF8_LCASE'))", "vector_sum(array(1f))",
]  # fmt: skip

#: Each may give something else on a replay, on another machine or in another session.
UNDETERMINED = [
    "rand()", "rand(5)", "randn()", "uuid()", "now()", "current_timestamp()", "current_date()", "localtimestamp()",
    "unix_timestamp()", "date_sub(current_date(), 1)", "spark_partition_id()",
    "input_file_name()", "current_user()", "current_timezone()", "current_database()", "version()", "shuffle(a)",
    "randstr(5)", "uniform(1, 5)", "java_method('java.util.UUID', 'randomUUID')",
    "aes_encrypt(s, '0000111122223333')",
    "to_date('today')", "to_timestamp('now')", "try_to_date(' Tomorrow')", "try_to_timestamp('yesterday UTC')",
    "to_timestamp_ntz('now')", "year('today')",
    "upper(concat(s, cast(rand() as string)))", "transform(a, x -> rand())", "if(n > 1, uuid(), s)",
]  # fmt: skip
