"""The nouns: English | French gender | Chinese measure word, under headings of categories.

A slash adds an irregular plural. Nouns under `mass` are not counted, those under `paired` are said
in the plural, `ruler` in the singular; `worn` and `kin` change a verb or a possessive in Chinese.
"""

from dataclasses import dataclass
from functools import cache

TABLE = """
@ food fruit
apple | pomme f | 苹果 个
orange | orange f | 橙子 个
banana | banane f | 香蕉 根
pear | poire f | 梨 个
lemon | citron m | 柠檬 个
peach/peaches | pêche f | 桃子 个
strawberry | fraise f | 草莓 个
cherry | cerise f | 樱桃 个
@ food vegetable
tomato/tomatoes | tomate f | 西红柿 个
carrot | carotte f | 胡萝卜 根
onion | oignon m | 洋葱 个
mushroom | champignon m | 蘑菇 个
@ food dish
egg | œuf m | 鸡蛋 个
cake | gâteau m | 蛋糕 个
sandwich/sandwiches | sandwich m | 三明治 个
pizza | pizza f | 披萨 个
@ food staple mass
bread | pain m | 面包
rice | riz m | 米饭
meat | viande f | 肉
cheese | fromage m | 奶酪
soup | soupe f | 汤
chocolate | chocolat m | 巧克力
sugar | sucre m | 糖
chicken | poulet m | 鸡肉
@ drink mass
water | eau f | 水
milk | lait m | 牛奶
coffee | café m | 咖啡
tea | thé m | 茶
juice | jus m | 果汁
beer | bière f | 啤酒
wine | vin m | 葡萄酒
@ clothes
shirt | chemise f | 衬衫 件
dress/dresses | robe f | 连衣裙 条
skirt | jupe f | 裙子 条
coat | manteau m | 大衣 件
sweater | pull m | 毛衣 件
@ clothes paired
shoe | chaussure f | 鞋子 只
sock | chaussette f | 袜子 只
@ clothes worn
hat | chapeau m | 帽子 顶
scarf/scarves | écharpe f | 围巾 条
@ clothes worn paired
glove | gant m | 手套 只
@ jewel worn
ring | bague f | 戒指 枚
watch/watches | montre f | 手表 块
@ text
book | livre m | 书 本
newspaper | journal m | 报纸 份
letter | lettre f | 信 封
novel | roman m | 小说 本
poem | poème m | 诗 首
dictionary | dictionnaire m | 词典 本
@ thing stationery
pen | stylo m | 钢笔 支
pencil | crayon m | 铅笔 支
@ thing tableware
knife/knives | couteau m | 刀 把
spoon | cuillère f | 勺子 把
plate | assiette f | 盘子 个
glass/glasses | verre m | 玻璃杯 个
cup | tasse f | 杯子 个
bottle | bouteille f | 瓶子 个
@ thing container
box/boxes | boîte f | 盒子 个
bag | sac m | 包 个
basket | panier m | 篮子 个
suitcase | valise f | 行李箱 个
@ thing
key | clé f | 钥匙 把
umbrella | parapluie m | 雨伞 把
gift | cadeau m | 礼物 份
ticket | billet m | 票 张
photo | photo f | 照片 张
painting | tableau m | 画 幅
map | carte f | 地图 张
flower | fleur f | 花 朵
towel | serviette f | 毛巾 条
blanket | couverture f | 毯子 条
toy | jouet m | 玩具 个
ball | balle f | 球 个
doll | poupée f | 洋娃娃 个
@ fixture
lamp | lampe f | 灯 盏
clock | horloge f | 钟 个
mirror | miroir m | 镜子 面
@ device
phone | téléphone m | 手机 部
computer | ordinateur m | 电脑 台
television | télévision f | 电视机 台
@ instrument
guitar | guitare f | 吉他 把
piano/pianos | piano m | 钢琴 架
violin | violon m | 小提琴 把
@ furniture
table | table f | 桌子 张
chair | chaise f | 椅子 把
bed | lit m | 床 张
sofa/sofas | canapé m | 沙发 张
desk | bureau m | 书桌 张
wardrobe | armoire f | 衣柜 个
fridge | frigo m | 冰箱 台
@ opening
door | porte f | 门 扇
window | fenêtre f | 窗户 扇
@ vehicle
car | voiture f | 汽车 辆
bicycle | vélo m | 自行车 辆
bus/buses | bus m | 公共汽车 辆
train | train m | 火车 列
boat | bateau m | 船 艘
plane | avion m | 飞机 架
truck | camion m | 卡车 辆
@ building
house | maison f | 房子 座
school | école f | 学校 所
hospital | hôpital m | 医院 家
church/churches | église f | 教堂 座
museum | musée m | 博物馆 座
restaurant | restaurant m | 餐馆 家
hotel | hôtel m | 酒店 家
shop | magasin m | 商店 家
library | bibliothèque f | 图书馆 座
bank | banque f | 银行 家
castle | château m | 城堡 座
station | gare f | 火车站 个
theatre | théâtre m | 剧院 座
@ room
kitchen | cuisine f | 厨房 间
bedroom | chambre f | 卧室 间
@ outdoors
garden | jardin m | 花园 个
park | parc m | 公园 个
market | marché m | 市场 个
farm | ferme f | 农场 个
beach/beaches | plage f | 海滩 片
street | rue f | 街道 条
city | ville f | 城市 座
village | village m | 村庄 个
bridge | pont m | 桥 座
@ nature
tree | arbre m | 树 棵
river | rivière f | 河 条
mountain | montagne f | 山 座
lake | lac m | 湖 个
forest | forêt f | 森林 片
@ animal pet
dog | chien m | 狗 只
cat | chat m | 猫 只
rabbit | lapin m | 兔子 只
@ animal farmed
horse | cheval m | 马 匹
cow | vache f | 奶牛 头
sheep/sheep | mouton m | 绵羊 只
pig | cochon m | 猪 头
goose/geese | oie f | 鹅 只
@ animal wild_animal
bird | oiseau m | 鸟 只
fish/fish | poisson m | 鱼 条
mouse/mice | souris f | 老鼠 只
elephant | éléphant m | 大象 头
bear | ours m | 熊 头
wolf/wolves | loup m | 狼 只
lion | lion m | 狮子 头
snake | serpent m | 蛇 条
@ person
man/men | homme m | 男人 个
woman/women | femme f | 女人 个
child/children | enfant m | 孩子 个
boy | garçon m | 男孩 个
girl | fille f | 女孩 个
baby | bébé m | 婴儿 个
neighbour | voisin m | 邻居 个
@ person ruler
king | roi m | 国王 个
queen | reine f | 女王 个
@ person kin
father | père m | 爸爸 个
mother | mère f | 妈妈 个
brother | frère m | 哥哥 个
sister | sœur f | 姐姐 个
uncle | oncle m | 叔叔 个
grandfather | grand-père m | 爷爷 个
grandmother | grand-mère f | 奶奶 个
son | fils m | 儿子 个
@ person job
teacher | professeur m | 老师 个
doctor | médecin m | 医生 个
student | étudiant m | 学生 个
farmer | fermier m | 农民 个
waiter | serveur m | 服务员 个
actor | acteur m | 演员 个
singer | chanteur m | 歌手 个
driver | chauffeur m | 司机 个
cook | cuisinier m | 厨师 个
lawyer | avocat m | 律师 个
engineer | ingénieur m | 工程师 个
policeman/policemen | policier m | 警察 个
soldier | soldat m | 士兵 个
@ work
song | chanson f | 歌 首
film | film m | 电影 部
story | histoire f | 故事 个
@ idea
question | question f | 问题 个
answer | réponse f | 答案 个
word | mot m | 单词 个
@ music mass
music | musique f | 音乐
@ language mass
French | français m | 法语
English | anglais m | 英语
Chinese | chinois m | 中文
@ sport mass
football | football m | 足球
tennis | tennis m | 网球
basketball | basket m | 篮球
"""


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun in the three languages; `measure` is the Chinese measure word."""

    english: str
    english_plural: str
    french: str
    feminine: bool
    chinese: str
    measure: str
    categories: frozenset[str]

    @property
    def mass(self) -> bool:
        """Whether the noun is not counted."""
        return "mass" in self.categories


def english_plural(noun: str) -> str:
    """The regular plural: knives, mice and the like are spelt out in the table."""
    return noun[:-1] + "ies" if noun[-1] == "y" and noun[-2] not in "aeo" else noun + "s"


@cache
def nouns() -> dict[str, Noun]:
    """Every noun, by its English singular."""
    result: dict[str, Noun] = {}
    categories: frozenset[str] = frozenset()
    for line in TABLE.strip().splitlines():
        if line.startswith("@"):
            categories = frozenset(line[1:].split())
            continue
        english, french, chinese = (part.split() for part in line.split("|"))
        singular, _, plural = english[0].partition("/")
        result[singular] = Noun(
            english=singular,
            english_plural=plural or english_plural(singular),
            french=french[0],
            feminine=french[1] == "f",
            chinese=chinese[0],
            measure=chinese[1] if len(chinese) > 1 else "",
            categories=categories,
        )
    return result


@cache
def _members() -> dict[str, list[Noun]]:
    """Nouns by name and by category."""
    members: dict[str, list[Noun]] = {}
    for noun in nouns().values():
        for name in (noun.english, *noun.categories):
            members.setdefault(name, []).append(noun)
    return members


def select(specification: str) -> list[Noun]:
    """The nouns of a list of categories and single nouns; `-x` takes category or noun x out."""
    chosen: dict[str, Noun] = {}
    for word in specification.split():
        for noun in _members()[word.removeprefix("-")]:
            if word.startswith("-"):
                chosen.pop(noun.english, None)
            else:
                chosen[noun.english] = noun
    return list(chosen.values())
