"""Short templates: each feature of the language, and random expressions."""

VARIABLES = {
    "s": "Hello, Wörld｜ab", "t": "  two\twords \n", "e": "", "q": "it's \"q\" \\ \n\u00a0é\x7f\u200b😀", "csv": "a,b,,c", "html": "<a href='x'>&\"</a>",
    "i": 7, "n": -3, "z": 0, "f": 2.5, "g": 1.0, "big": 12345678901234567890, "tiny": 1.5e-7, "huge": 1e22,
    "yes": True, "no": False, "nil": None,
    "l": [3, 1, 2], "m": [1, "a", None, True, 2.0, [], {}], "w": ["b", "A", "c", "a"], "el": [],
    "d": {"b": 1, "a": [1, 2], "items": "shadow", "Z": {"y": None}, "k e": "<&>"}, "ed": {},
    "r": [{"n": "x", "v": 2, "o": {"p": 1}}, {"n": "Y", "v": 1}, {"n": "x", "v": 3, "o": {"p": 0}}],
}

EXPRESSIONS = """
s|upper  s|lower  s|title  s|capitalize  t|trim  t|trim('\\n')  s|length  s|reverse  s|first  s|last  s|list  s|string
"foo-bar (baz) it's"|title  "ÀÉ ß"|lower  "straße"|upper  "hELLO wORLD's"|capitalize  "a.b-c d"|title  t|wordcount
s|replace('l','L')  s|replace('l','L',1)  s|replace('','-')  e|replace('','x')  s|center(30)  s|truncate(9)  s|truncate(9,True)
s|truncate(9,False,'..',0)  s|truncate(255)  q|tojson  q|tojson(ensure_ascii=true)  d|tojson  d|tojson(indent=2)  d|tojson(sort_keys=true)
d|tojson(indent=0)  d|tojson(indent='\\t')  d|tojson(separators=(',',':'))  m|tojson  el|tojson(indent=4)  ed|tojson(indent=4)  nil|tojson
[1.0,1e16,1e-5,123456.789,0.1]|tojson  {1:2,true:3,none:4,1.5:5}|tojson  (1,2)|tojson  undefined_thing|tojson  range(2)|tojson  s.upper|tojson
html|e  html|escape|escape  html|safe  (html|safe)+html  html+(html|safe)  (html|safe)~html  html|forceescape  (html|safe)|e  html|e|upper
'%s'|format(html)  '%s-%d'|format('a',3)  '%(a)s'|format(a=1)  l|sum  l|max  l|min  l|sort  l|sort(reverse=true)  w|sort  w|sort(case_sensitive=true)
w|max  w|unique|list  w|min  el|max  el|first  el|last  l|join  l|join('-')  m|join(',')  s|join('.')  r|join('|',attribute='n')  d|join(',')
d|items|list  d|dictsort  d|dictsort(by='value')  d|dictsort(reverse=true)  d|list  d|length  d|first  ed|items|list  nil|items  undefined_thing|items|list
r|map(attribute='n')|list  r|map(attribute='o.p')|list  r|map(attribute='o.p',default='-')|list  w|map('upper')|list  w|map('replace','a','z')|list
r|selectattr('o')|list|length  r|selectattr('v','gt',1)|map(attribute='v')|list  r|rejectattr('n','equalto','x')|list|length  l|select('odd')|list
l|select|list  m|select|list  m|reject('none')|list  m|select('string')|list  l|reject('equalto',1)|list  r|sort(attribute='v')|map(attribute='v')|list
r|sort(attribute='n,v')|map(attribute='v')|list  r|groupby('n')|list|length  r|groupby('n')|map('first')|list  r|sum(attribute='v')  r|unique(attribute='n')|list|length
l|batch(2)|list  l|batch(2,0)|list  l|slice(2)|list  range(10)|slice(3,'x')|list  l|reverse|list  nil|default('x')  undefined_thing|default('x')  undefined_thing|d
e|default('x')  e|default('x',true)  z|default('x',boolean=true)  '42'|int  ' 1_0 '|int  'x'|int  'x'|int(5)  '3.9'|int  '0x1f'|int(0,16)  '1f'|int(default=2,base=16)  f|int  nil|int
yes|int  l|int  '2.5'|float  'x'|float  'inf'|float  i|float  big  big+1  tiny  huge  huge|int  f|round  2.675|round(2)  i|round  3.5|round  4.5|round  f|round(0,'ceil')  2.01|round(1,'floor')  1234.5|round(-2)
n|abs  f|abs  nil|abs  s|abs  t|indent  "a\\n\\nb"|indent(2)  "a\\n\\nb"|indent(2,true)  "a\\n\\nb"|indent(2,blank=true)  "a\\nb\\n"|indent('> ')  ''|indent(2,true)  nil|string  l|string  undefined_thing|string
s.strip('Hb')  t.strip()  t.lstrip()  t.rstrip()  "xxaxx".strip('x')  "xyax".lstrip('yx')  csv.split(',')  csv.split(',',1)  csv.rsplit(',',1)  t.split()  t.split(None,1)  t.rsplit(None,1)  "a  b".split(' ')  ''.split()  ''.split(',')
"a b c d".split(maxsplit=2)  "  a  b  c ".rsplit(maxsplit=1)  csv.partition(',')  csv.rpartition(',')  csv.partition('#')  csv.rpartition('#')  s.find('l')  s.find('ö')  s.find('zz')  s.rfind('l')  s.index('W')  s.index('zz')  s.count('l')  s.count('')
s.find('l',4)  s.count('l',0,3)  s.startswith('Hell')  s.startswith(('x','H'))  s.startswith('ello',1)  s.endswith('ab')  s.endswith(('b','c'))  s.startswith(l)  s.replace('l','')  s.replace('l','L',1)  ','.join(w)  ','.join(l)  s.upper()  s.lower()  s.title()  "they're bill's".title()
s.swapcase()  s.capitalize()  s.center(20,'*')  s.ljust(20,'.')  s.rjust(20)  '42'.zfill(5)  '-42'.zfill(5)  s.removeprefix('He')  s.removesuffix('ab')  "a\\nb\\r\\nc\\n".splitlines()  "a\\nb\\r\\nc\\n".splitlines(true)
'12'.isdigit()  'a1'.isalnum()  'ab'.isalpha()  ' \\n'.isspace()  'AB'.isupper()  'aB'.islower()  ''.isdigit()  '½'.isnumeric()  'é'.isascii()  s.isalpha
d.get('b')  d.get('x')  d.get('x',1)  d.items()  d.keys()  d.values()|list  d.items  d['items']  d.b  d['b']  d.x  d['x']  d.x.y  d['a'][1]  d.a.0  d.Z.y  d['k e']  d.keys()|list  d.get  ed.items()|list  d.copy() == d
d.pop('b')  l.append(1)  d.update({})  l.index(2)  l.count(1)  l.index(9)  m.index('a')  l[0]  l[-1]  l[9]  l['x']  l[1:]  l[:-1]  l[::-1]  l[::2]  l[-2:]  l[5:]  l[2:0:-1]  l[::0]  s[0]  s[-1]  s[99]  s[1:4]  s[::-1]  s[::3]  s[-3:]  s[:-3]  s[4:1:-1]  s[10:2:-2]  s[1:99]  m[1:][::-1]
(1,2,3)[1:]  'abc'[1]  d[1:]  nil[0]  nil.x  i.x  undefined_thing.x  undefined_thing['x']  undefined_thing()  s()  l.x  l.x.y
1+2  1-2  2*3  7/2  7//2  -7//2  7%3  -7%3  7%-3  2**10  2**-1  2.0**3  7.5//2  -7.5%2  1/0  1//0  1%0  1.0/0  1+1.5  yes+1  'a'+'b'  'a'+1  1+'a'  'a'*3  3*'ab'  'a'*-1  [1]*2  l+[9]  l+'a'  (1,)+(2,)  [1]+(2,)  l-l  -i  +i  -f  +yes  -yes  -s  --i  2**3**2  -2**2  1-2-3  2*3%4
9223372036854775807+1  big*3  10**20  1e3  1_000  0x1F  0o17  0b101  1.5e-3  1e16  123456789.123  0.1+0.2  1e100  -0.0  100000000000000000.0  5e-324  1.7976931348623157e308
1<2<3  3>2>2  1==1.0  yes==1  'a'<'b'  'a'<1  nil<1  l<[3,2]  l==[3,1,2]  (1,2)==[1,2]  d=={}  nil==none  nil!=0  undefined_thing==undefined_thing  undefined_thing==none  1 in l  9 in l  9 not in l  'a' in s  'b' in d  'x' not in d  1 in s  '' in s  nil in m  1 in undefined_thing  'a' in nil  2.0 in l  undefined_thing < 1
yes and no  yes or no  not yes  e or 'x'  l and s  nil and 1  not nil and yes  not (yes and no)  1 if yes else 2  1 if no  (1 if no)|default('u')  1 if no else 2 if no else 3  'a' ~ 1 ~ none ~ 2.0 ~ l  'a' ~ 'b' + 'c'  1 + 2 ~ 3  undefined_thing ~ 'x'
i is odd  i is even  i is divisibleby 7  i is divisibleby(2)  f is odd  s is string  i is string  d is mapping  l is mapping  l is iterable  s is iterable  i is iterable  undefined_thing is iterable  l is sequence  d is sequence  s is sequence  i is sequence  undefined_thing is sequence  i is number  yes is number  f is float  i is integer  yes is integer  g is integer
yes is true  1 is true  no is false  nil is none  nil is not none  undefined_thing is defined  s is defined  undefined_thing is undefined  d.x is defined  d.x.y is defined  yes is boolean  1 is boolean  s is lower  'abc' is lower  'ABC' is upper  s.upper is callable  s is callable  1 is eq 1  1 is ne 1  1 is lt 2  1 is ge 2  1 is in l  1 is in(l)  'x' is equalto 'x'  nil is sameas none  yes is sameas(true)  1 is sameas 1.0  'upper' is filter  'odd' is test  html|e is escaped  s is nosuchtest  not i is odd  i is not odd  i is odd and f is float
s|nosuchfilter  1|upper  nil|upper  l|upper  nil|length  i|length  s|length > 3  (s|length)-1  s|upper|lower|title  -1|abs  (-1)|abs  i|string + 'x'  'x'|string|length
'%s %s'%('a',1)  '%d'%3.7  '%5.2f|%-5s|%05d|%+d|%x|%X|%o|%e|%g|%%|%r|%c'%(1.5,'ab',42,7,255,255,8,12345.678,0.0001,'q',65)  '%s'%l  '%s'%(l,)  '%s'%none  '%s %s'%'a'  'a'%1  '%(x)s-%(y)d'%{'x':1,'y':2}  '%.2s'%'abc'  '%5s|%-5s|'%('é','é')  '%z'%1  '%d'%'a'  '%s' % 'a' ~ 'b'  '%.3g'%1234567.0  '%10.3e|'%3.14159  '%i'%true  '%#x %#o'%(255,8)  '% d'%5
'{}-{}'.format(1,'a')  '{1}{0}'.format(1,2)  '{a}{b[k]}{c.x}'.format(a=1,b={'k':2},c=namespace(x=3))  '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a','b','c','d')  '{:05d}|{:+}|{:,}|{:x}|{:#x}|{:b}|{:.2f}|{:e}|{:%}|{:10.3f}|'.format(42,7,1234567,255,255,5,3.14159,1234.5,0.25,2.0)  '{!r}'.format('a')  '{{}}'.format()  '{'.format()  '{}'.format()  '{x}'.format()  '{:.1f}'.format('a')  '{:d}'.format(1.5)  '{}{}'.format(none,true)  '{:g}'.format(0.1)  '{:,.2f}'.format(9876543.21)  '{:<4}|'.format(7)
[1,'a',none,true,1.5,(1,),{},[]]  {'a':1,'b':[none]}  (1,)  ()  (1,2)  ['it\\'s']  ["q\\"'"]  ['a\\nb\\t\\\\']  ['é\\u200b\\x00\\U0001F600']  [undefined_thing]  [html|safe]  {1:2}  {'a':1,'a':2}  {(1,2):3}[(1,2)]  {1:'x'}[1.0]  {true:'x'}[1]  [1,2,]  {'a':1,}
range(3)|list  range(1,4)|list  range(5,0,-2)|list  range(0)|list  range(1000000)|length  range(1,2,0)  range(3)[1]  range(5)[1:3]|list  range(3)|length  dict(a=1)  dict({'x':1},y=2)  dict([('a',1)])  namespace(a=1).a  namespace({'b':2}).b  namespace().x  strftime_now('%Y-%m-%d %H:%M:%S')  strftime_now('%d %b %Y')  strftime_now('%B %d, %Y')  strftime_now('%A %-d %j')  strftime_now('')  raise_exception('no: ' ~ i)
"a" "b"  'a\\x41\\u00e9\\n\\'\\101\\q'  "tab\\tq\\""  1.0  1.50  true  True  none  None  [True,False,None]  s.x|default('d')  (l|first)+1  l|map('string')|join('+')  l|map('float')|map('int')|sum  'abc'|map('upper')|join  ({'a':{'b':{'c':5}}}).a.b.c  [[1,2],[3]]|map('length')|list  [3,1]|sort|first  w|map('lower')|unique|sort|join  d.items()|list|first|last  (d|dictsort|first)[0]  l[l|length-1]  {'x':l}['x'][0]  s|list|length  's' in 'sss'|list  [1,2]|last * 3  i//2*2  (i,n)|max  'a,b'.split(',')[0].upper()  s.split('，')[-1].split('｜')[0]
""".split("\n")

TEMPLATES = [
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {{ loop.cycle('a','b') }} {{ loop.depth }}{{ loop.nope }}|{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{% else %}none{% endfor %}", "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in l %}{% endfor %}", "{% for (a, b), c in [((1,2),3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for c in s %}{{ c }}.{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for x in nil %}{% endfor %}", "{% for x in undefined_thing %}x{% else %}e{% endfor %}",
    "{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for a in l %}{% for b in w %}{{ loop.index }}{% if b == 'c' %}{% break %}{% endif %}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% set x = 1 %}{% for a in l %}{{ x }}{% set x = a %}{{ x }}{% endfor %}{{ x }}", "{% if yes %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for a in l %}{% set ns.x = ns.x + a %}{% endfor %}{{ ns.x }}", "{% set d.x = 1 %}", "{% set ns.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set a, b = l %}", "{% set x %} a{{ i }} {% endset %}[{{ x }}]", "{% set x | upper | trim %} ab{% endset %}[{{ x }}]",
    "{% macro f(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(1, c=5) }} {{ f(b=1, a=0) }} {{ f() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(x=2) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, k=3) }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro f() %}{{ x }}{% endmacro %}{% set x = 3 %}{{ f() }}",
    "{% macro f(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call f('b') %}in{{ i }}{% endcall %}", "{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro f() %}{% endmacro %}{% call f() %}x{% endcall %}", "{% macro f() %}{{ caller }}{% endmacro %}[{{ f() }}]", "{% macro f(a=[]) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a': 2}) }}",
    "{% macro f() %}a{% endmacro %}{{ f() + 'b' }}{{ f() | upper }}{{ f() is string }}", "{% for x in l %}{% macro g() %}{{ x }}{% endmacro %}{{ g() }}{% endfor %}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}banana{% endfilter %}", "{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% generation %}x{{ i }}{% endgeneration %}",
    "{% raw %}{{ x }}{% if %}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b", "{# comment {{ x }} #}a{#- b -#} c", "a\n  {# c #}\n  b", "{% if no %}a{% elif yes %}b{% else %}c{% endif %}",
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n", "a\n  {%+ if yes %}\n  b\n  {%- endif +%}\nc\n\n", "  {{ i }}  \n  {{- i -}}  \n {{ i }}\n", "\n\n{% if yes %}\n\n{{ i }}\n\n{% endif %}\n\n", "{% if yes -%}\n \n a \n {%- endif %}\n b", "a {% if yes %} b {% endif %} c",
    "\t{% set x = 1 %}\t\n{{ x }}\r\nb\r\n", "x\n\u00a0{% if yes %}y{% endif %}", "{{ '}}' }}{{ {'a': {'b': 1}} }}", "{{ '{%' }}{% set x = '%}' %}{{ x }}", "{{ i }", "{% if yes %}", "{% endif %}", "{{ }}", "{{ 1 + }}", "{% for x in %}{% endfor %}", "{{ 'abc }}", "{% nosuch %}", "{{ l[ }}", "{% break %}", "{% set 1 = 2 %}",
    "{% print i %}", "{{ loop }}", "{% if l %}y{% endif %}{% if el %}n{% endif %}{% if e or nil or z %}n{% endif %}{% if undefined_thing %}n{% endif %}", "{{ s if s }}{{ s if no }}", "{{ 1, 2 }}", "{{ l|join(', ') if l else 'none' }}",
    "{% set x = 5 if i > 3 else 6 %}{{ x }}", "{% for i in [1] %}{{ i }}{% endfor %}{{ i }}", "{% set loop = 1 %}{{ loop }}", "{% for x in d|dictsort %}{{ x[0] }}{{ x.1 }}{% endfor %}", "{{ [1,2,3][0] }}{{ (1,2)[1] }}{{ {'a':1}.a }}{{ 'x'.upper() }}{{ 1 .__class__ }}",
    "{{ ''.__class__ }}", "{{ ''.__class__.__mro__ }}", "{{ s.__len__() }}", "{{ nil.__class__ }}",
]


def expressions():
    return [e for line in EXPRESSIONS for e in line.split("  ") if e.strip()]


def random_expression(rng, depth):
    """An expression over VARIABLES; most are valid, and errors must agree too."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(list(VARIABLES) + ["1", "2", "-1", "0.5", "'a'", "'l'", "','", "none", "true", "[]", "u"])
    sub = lambda: random_expression(rng, depth - 1)
    kind = rng.randrange(10)
    if kind == 0:
        return "(%s %s %s)" % (sub(), rng.choice(["+", "-", "*", "/", "//", "%", "~", "~"]), sub())
    if kind == 1:
        return "(%s %s %s)" % (sub(), rng.choice(["==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]), sub())
    if kind == 2:
        return "(%s if %s else %s)" % (sub(), sub(), sub())
    if kind == 3:
        # Of variables: jinja2 folds constants, and the slice of a constant number is undefined, not an error.
        return "%s[%s]" % (rng.choice(list(VARIABLES)), rng.choice(["0", "-1", "1:", ":-1", "::-1", "1:3", "::2", "'b'", "-2:", "2:0:-1"]))
    if kind in (4, 5):
        return "(%s|%s)" % (sub(), rng.choice(["upper", "lower", "title", "trim", "length", "first", "last", "list", "string", "tojson", "join(',')",
                                               "sort", "reverse|list", "unique|list", "default('x')", "default('x',true)", "int", "float", "capitalize", "max", "min", "sum", "items|list", "dictsort", "map('string')|list", "select('defined')|list", "replace('l','LL')", "indent(2)", "round", "abs", "wordcount", "tojson(indent=1)"]))
    if kind == 6:
        return "(%s is %s%s)" % (sub(), rng.choice(["", "not "]), rng.choice(["defined", "none", "string", "number", "mapping", "sequence", "iterable", "odd", "boolean", "integer", "float", "true", "false", "lower", "upper", "in l", "eq 1"]))
    if kind == 7:
        return "(%s).%s" % (sub(), rng.choice(["strip()", "split()", "split(',')", "upper()", "title()", "items()|list", "keys()|list", "get('b')", "startswith('a')", "count('l')", "find('l')", "b", "replace('l', s)", "rsplit('l',1)", "splitlines()", "partition('l')", "isalpha()", "rstrip('b')"]))
    if kind == 8:
        return "[%s, %s]" % (sub(), sub())
    return "{'k': %s}" % sub()
