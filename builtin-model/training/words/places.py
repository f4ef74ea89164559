"""Places: cities, countries, and smaller ones."""

CITIES = """
Aarhus Accra Adelaide Algiers Amman Ankara Antwerp Athens Auckland Austin Bamako Bangkok Barcelona Basel Beirut Belfast
Belgrade Bergen Berlin Bern Bilbao Bologna Bonn Bordeaux Boston Bremen Brisbane Bristol Brno Brussels Bucharest
Budapest Cairo Calgary Cardiff Casablanca Chicago Cologne Copenhagen Cork Cracow Dakar Dallas Damascus Darwin Delhi
Denver Detroit Dhaka Dresden Dublin Durban Edinburgh Florence Frankfurt Geneva Genoa Ghent Glasgow Graz Hamburg Hanoi
Havana Helsinki Hobart Houston Innsbruck Istanbul Izmir Jakarta Kabul Kampala Karachi Kiev Kingston Kyoto Lagos Lahore
Leeds Leipzig Lille Lima Lisbon Liverpool London Luanda Lusaka Lyon Madrid Malaga Malmo Manchester Manila Marseille
Melbourne Memphis Miami Milan Minsk Montreal Moscow Mumbai Munich Nairobi Nantes Naples Nice Odessa Osaka Oslo Ottawa
Oxford Palermo Paris Perth Phoenix Porto Portland Prague Quito Rabat Reykjavik Riga Rome Rotterdam Salzburg Santiago
Seattle Seoul Seville Shanghai Sofia Split Stockholm Stuttgart Sydney Tallinn Tampere Tokyo Toronto Toulouse Trieste
Tripoli Tunis Turin Utrecht Valencia Vancouver Venice Vienna Vilnius Warsaw Wellington York Zagreb Zurich
""".split()

COUNTRIES = """
Albania Algeria Angola Argentina Armenia Australia Austria Bangladesh Belgium Bolivia Brazil Bulgaria Cambodia
Cameroon Canada Chad Chile China Colombia Croatia Cuba Cyprus Denmark Ecuador Egypt Estonia Ethiopia Fiji Finland
France Gabon Georgia Germany Ghana Greece Guatemala Haiti Honduras Hungary Iceland India Indonesia Iran Iraq Ireland
Israel Italy Jamaica Japan Jordan Kenya Kuwait Laos Latvia Lebanon Libya Lithuania Madagascar Malawi Malaysia Mali
Malta Mexico Moldova Mongolia Morocco Mozambique Namibia Nepal Netherlands Nicaragua Niger Nigeria Norway Oman Pakistan
Panama Paraguay Peru Poland Portugal Qatar Romania Russia Rwanda Senegal Serbia Singapore Slovakia Slovenia Somalia
Spain Sudan Sweden Switzerland Syria Taiwan Tanzania Thailand Togo Tunisia Turkey Uganda Ukraine Uruguay Venezuela
Vietnam Yemen Zambia Zimbabwe
""".split()

VENUES = [venue.strip() for venue in """
library, museum, theatre, stadium, town hall, opera house, city park, school gym, harbour, market square, main station,
university, castle, old mill, concert hall, north pier, botanical garden, community centre, grand hotel, art gallery,
cinema, town square, sports hall, lakeside, river bank, observatory, music school, airport lounge, church hall,
beach club, fire station, planetarium, winter garden, old brewery, hospital, courthouse, south gate, rowing club
""".split(",")]
