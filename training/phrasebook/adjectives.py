"""The adjectives: English | French masculine and feminine | Chinese | nouns they go with.

After the English, `+` marks what there can be too much of, `-` what is never "very", `!` what is no
predicate ("the towel is new" would be "neuve"). `^` marks a French adjective that stands before its
noun, `=` one that never changes; a third form is the one before a vowel. In Chinese, 的 marks
adjectives that it links to their noun, 是 those that are predicates as 是 … 的; another adjective
may hold for some nouns, as in `旧,老:animal`.
"""

from dataclasses import dataclass
from functools import cache

from training.phrasebook.nouns import Noun, select

TABLE = """
green | vert | 绿色 的 是 | apple pear clothes worn -ring vehicle -plane -train opening \
container furniture -fridge pen pencil umbrella towel blanket plate cup bottle ball bird \
snake
red | rouge | 红色 的 是 | apple cherry tomato clothes hat scarf glove vehicle opening container \
furniture pen pencil umbrella towel blanket plate cup flower ball bird fish
blue | bleu | 蓝色 的 是 | clothes hat scarf glove vehicle opening container chair sofa pen \
pencil umbrella towel blanket plate cup flower ball bird fish
black | noir | 黑色 的 是 | clothes worn -ring vehicle -plane umbrella bag suitcase box pen \
phone computer piano sofa desk pet horse cow bird bear sheep
white | blanc/blanche | 白色 的 是 | clothes hat scarf glove car truck boat opening house plate \
cup flower towel blanket pet horse bird sheep goose mouse fridge
yellow | jaune | 黄色 的 是 | apple pear clothes hat scarf car bus bicycle flower pencil \
umbrella ball bird fish
brown | marron= | 棕色 的 是 | clothes hat glove bag suitcase sofa table chair dog horse cow \
bear
pink | rose | 粉色 的 是 | clothes hat scarf glove flower umbrella towel bag doll pig
big + | ^grand | 大 | building room city village garden park container furniture truck boat \
plane painting mirror river lake mountain tree forest dog farmed elephant bear fish
small + | ^petit | 小 | building -hospital room city village garden park container furniture \
boat car key mirror river lake animal -elephant -bear -lion gift flower plate spoon cake
beautiful | ^beau/belle/bel | 美丽 的 | city village garden park beach castle nature flower \
bird horse song story
pretty | ^joli | 漂亮 的 | clothes -sock worn doll painting photo flower lamp mirror box house \
cat bird
new ! | ^nouveau/nouvelle/nouvel | 新 | building text -letter clothes worn thing -flower \
device instrument furniture fixture vehicle song film
old + | ^vieux/vieille/vieil | 旧,老:animal building outdoors tree | clothes hat text thing \
-flower -gift -ticket device instrument furniture fixture vehicle building bridge farm city \
tree dog cat horse
good | ^bon/bonne | 好 | text -letter -newspaper work job restaurant hotel school question \
answer wine cheese coffee instrument
young + | ^jeune | 年轻 的 | man woman king queen job -driver kin
long + | ^long/longue | 长 | dress skirt coat scarf letter poem story table street bridge \
river knife train snake bus boat sofa
short + | court | 短 | dress skirt coat scarf knife bridge street poem story
expensive + | cher/chère | 昂贵 的 | clothes -sock worn book dictionary device instrument \
furniture vehicle -bus -train restaurant hotel painting gift wine umbrella bag suitcase \
fixture
clean | propre | 干净 的 | clothes tableware towel blanket room house hotel street beach car \
water river lake opening
dirty + | sale | 脏 | clothes glove hat tableware towel blanket room street beach car truck \
window water river dog pig
heavy + | lourd | 沉重 的 | container book dictionary furniture door blanket coat
empty | vide | 空 是 | container bottle glass cup wardrobe fridge bus train house church \
street theatre
fresh | frais/fraîche | 新鲜 的 | fruit vegetable egg bread meat cheese milk juice fish
ripe | mûr | 成熟 的 | fruit tomato
sweet + | sucré | 甜 | fruit -lemon juice tea cake wine
delicious - | délicieux/délicieuse | 美味 的 | fruit -lemon cake sandwich pizza staple -sugar \
coffee tea juice wine
interesting | intéressant | 有意思 的 | text -dictionary work museum city question answer park \
village
boring | ennuyeux/ennuyeuse | 无聊 的 | text -dictionary work museum question answer village
complicated + | compliqué | 复杂 的 | question answer story film word poem map novel dictionary
simple | simple | 简单 的 | question answer story word poem song
famous | célèbre | 著名 的 | actor singer lawyer cook doctor castle museum restaurant hotel \
bridge painting novel poem song film theatre city
rich | riche | 富有 的 | king queen man woman farmer lawyer singer doctor neighbour city kin
intelligent | intelligent | 聪明 的 | man woman child boy girl student job dog queen horse cat \
kin
kind | ^gentil/gentille | 善良 的 | woman child boy girl job king queen neighbour kin
brave | courageux/courageuse | 勇敢 的 | man woman child boy girl soldier policeman king queen \
dog farmer kin
polite | poli | 有礼貌 的 | child boy girl man woman waiter neighbour student policeman driver \
kin
shy + | timide | 害羞 的 | child boy girl student actor man woman singer cat kin
lazy + | paresseux/paresseuse | 懒惰 的 | child boy girl student waiter cat dog cook king man \
kin
strong | fort | 强壮 的 | man woman boy soldier farmer policeman horse bear lion elephant kin
honest | honnête | 诚实 的 | man woman child boy girl lawyer waiter farmer neighbour student \
kin
hot + | chaud | 热 | water milk coffee tea soup rice bread pizza meat
cold + | froid | 冷 | water milk coffee tea soup juice meat rice chicken pizza beer
warm + | chaud | 暖和 的 | coat sweater glove scarf hat blanket sock bedroom
modern | moderne | 现代 的 | building -castle -church city kitchen bridge furniture device car \
train bus
dangerous + | dangereux/dangereuse | 危险 的 | bear wolf lion snake river mountain street \
bridge city forest
noisy + | bruyant | 吵闹 的 | street city market station restaurant bus neighbour child car \
truck
useful | utile | 有用 的 | book dictionary map computer phone tableware key basket answer \
umbrella
soft | doux/douce | 柔软 的 | blanket towel sweater scarf skirt glove coat
wet + | mouillé | 湿 | clothes hat glove scarf towel blanket dog cat umbrella street
special | spécial | 特别 的 | gift ticket cake letter book film song word photo dress story key
traditional | traditionnel/traditionnelle | 传统 的 | dress song story house music hat market \
cake restaurant coat
French | français | 法国 是 | book newspaper novel film song wine cheese car cake soup watch \
skirt restaurant singer actor teacher student dress lamp
Chinese | chinois | 中国 是 | book newspaper novel film song tea soup watch toy restaurant lamp \
singer actor teacher student dress cup
Italian | italien/italienne | 意大利 是 | book newspaper novel film song wine cheese car shoe \
pizza soup watch skirt coat restaurant singer actor teacher student
German | allemand | 德国 是 | book newspaper novel film song beer car watch bread restaurant \
singer actor teacher student lamp guitar suitcase dress
"""

# Said of people alone: "She is tired." Chinese as above.
STATES = """
tired + | fatigué | 累
busy + | occupé | 忙
happy | heureux/heureuse | 开心
sad + | triste | 伤心
angry + | fâché | 生气
calm | calme | 平静
"""


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective in the three languages.

    `french` holds masculine, feminine, and the masculine before a vowel; `french_before` tells that
    it stands before its noun. `linked` adjectives take 的, `classifying` ones 是 … 的. `degrees`
    are the adverbs that go with it.
    """

    english: str
    french: tuple[str, str, str]
    french_before: bool
    invariable: bool
    chinese: str
    chinese_by_noun: dict[str, str]
    linked: bool
    classifying: bool
    nouns: tuple[Noun, ...]
    degrees: tuple[str, ...]
    predicate: bool


def _parse(line: str) -> Adjective:
    english, french, chinese, *rest = (part.strip() for part in line.split("|"))
    english, _, mark = english.partition(" ")
    forms = french.strip("^=").split("/")
    masculine = forms[0]
    invariable = french.endswith("=")
    unchanged = invariable or masculine.endswith("e")
    feminine = forms[1] if len(forms) > 1 else masculine + ("" if unchanged else "e")
    prevocalic = forms[2] if len(forms) > 2 else masculine
    word, _, override = chinese.partition(",")
    flags = chinese.split()[1:]
    by_noun = {}
    if override:
        form, _, names = override.partition(":")
        by_noun = {noun.english: form for noun in select(names)}
        flags = []
    return Adjective(
        english=english,
        french=(masculine, feminine, prevocalic),
        french_before=french.startswith("^"),
        invariable=invariable,
        chinese=word.split()[0],
        chinese_by_noun=by_noun,
        linked="的" in flags,
        classifying="是" in flags,
        nouns=tuple(select(rest[0])) if rest else (),
        degrees=() if "是" in flags or mark == "-" else ("very", "too")[: 1 + (mark == "+")],
        predicate=mark != "!",
    )


@cache
def adjectives() -> dict[str, Adjective]:
    """The adjectives that go with nouns, by their English form."""
    parsed = (_parse(line) for line in TABLE.strip().splitlines())
    return {adjective.english: adjective for adjective in parsed}


@cache
def states() -> dict[str, Adjective]:
    """The adjectives said of people."""
    parsed = (_parse(line) for line in STATES.strip().splitlines())
    return {adjective.english: adjective for adjective in parsed}
